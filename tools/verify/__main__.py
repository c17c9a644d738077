"""`python -m tools.verify DIR [--json]`: does this project compute what the reference computed?

DIR is a model directory with reference arrays next to the weights. Each stage loads the weights
through the project's own loaders and compares every array of its part; an array that no
stage compared is reported like one that differs.

Exit status: 0 all within tolerance, 1 something differs or could not be compared, 2 bad arguments,
3 the directory is no model.
"""

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import torch

from cosyserve.commands.terminal.output import WRONG_USAGE, Parser, WrongUsage, report_failure
from cosyserve.errors import ModelError
from cosyserve.generations.reading import generation_of
from cosyserve.generations.separate_decoder import decoder_of
from cosyserve.model_directory import ModelDirectory
from tools.verify.recording import DECODER_INPUTS, INPUTS, check_all_compared
from tools.verify.report import Report

STAGES = ("text", "features", "llm", "flow", "vocoder", "token2wav")
DECODER_STAGES = ("step_audio2.flow", "step_audio2.estimator", "step_audio2.vocoder")
"""Of a directory that holds a flow and a vocoder alone."""
SILENT = "silent"
"""A stage of generations that leave silent tokens out."""
_NOT_COMPARED = 3


def run(directory: Path) -> dict[str, Report]:
    """One report per stage, and one named `arrays` for what no stage compared. Raises ModelError
    when `directory` is no model.
    """
    model = ModelDirectory(directory)
    model.config()
    stages: tuple[str, ...] = DECODER_STAGES
    inputs = DECODER_INPUTS
    if decoder_of(model) is None:
        stages = STAGES if generation_of(model).silent is None else (*STAGES, SILENT)
        inputs = INPUTS
    reports = {stage: run_stage(stage, directory) for stage in stages}
    reports["arrays"] = Report()
    named = [row.array for report in reports.values() for row in report.rows]
    check_all_compared(directory, named, reports["arrays"], inputs)
    return reports


def run_stage(stage: str, directory: Path) -> Report:
    """The rows of one of STAGES or DECODER_STAGES, or of SILENT."""
    report = Report()
    try:
        import_module(f"tools.verify.{stage}").verify(directory, report)
    except (
        Exception
        # a stage that cannot run is a row of the table; the other stages still have something to
        # say
    ) as error:
        report.missing(stage, f"{type(error).__name__}: {error}")
    if not report.rows:
        report.missing(stage, "the stage compared nothing")
    return report


def render(reports: dict[str, Report], seconds: float) -> str:
    """The tables of all stages and a summary line."""
    blocks = [f"{stage}\n{report.as_table()}" for stage, report in reports.items() if report.rows]
    rows = [row for report in reports.values() for row in report.rows]
    bad = [f"{row.array} {row.verdict}" for row in rows if row.verdict != "ok"]
    shown = ", ".join(bad[:8]) + (f" and {len(bad) - 8} more" if len(bad) > 8 else "")
    summary = f"{len(rows)} comparisons, {len(rows) - len(bad)} within tolerance, {seconds:.1f} s"
    return "\n\n".join([*blocks, summary + (f"; not ok: {shown}" if bad else "")])


def as_json(directory: Path, reports: dict[str, Report], seconds: float) -> str:
    """The same as `render` for programs; an error that could not be measured is null."""
    stages = {
        stage: [asdict(row) | {"error": None if math.isnan(row.error) else row.error} for row in report.rows]
        for stage, report in reports.items()
    }
    return json.dumps(
        {"ok": all_ok(reports), "directory": str(directory), "seconds": round(seconds, 3), "stages": stages}, indent=1
    )


def all_ok(reports: dict[str, Report]) -> bool:
    """Whether every comparison of every stage held."""
    return all(row.verdict == "ok" for report in reports.values() for row in report.rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m tools.verify", description="Compare a model directory with its reference arrays.")
    parser.add_argument(
        "directory",
        type=Path,
        help="model directory with llm.npz, flow_mel.npz, ... and arrays.json next to the weights",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="CPU threads of one operation, as a service has them (default: %(default)s)",
    )
    wants_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    try:
        options = parser.parse_args(arguments)
        if not options.directory.is_dir():
            parser.error(f"{options.directory}: no such directory")
        if options.threads < 1:
            parser.error(f"--threads is {options.threads}, must be at least 1")
        torch.set_num_threads(options.threads)
        began = time.perf_counter()
        reports = run(options.directory)
    except WrongUsage as error:
        if not wants_json:
            sys.stderr.write(error.usage)
        return report_failure("", str(error), WRONG_USAGE, as_json=wants_json)
    except ModelError as error:
        return report_failure("", str(error), _NOT_COMPARED, as_json=wants_json)
    seconds = time.perf_counter() - began
    print(as_json(options.directory, reports, seconds) if options.json else render(reports, seconds))
    return 0 if all_ok(reports) else 1


if __name__ == "__main__":
    sys.exit(main())
