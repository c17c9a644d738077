"""Everything that is measured without a GPU, in one command: `python -m bench.cpu [--part NAME]
[--list] [--quick] [--out DIR]`.

The bundled model, or another by --model, through engines and services on this machine; ten minutes
on two cores. Writes report.md, report.json and plots. A part that fails stops no other. The same
command goes on where it was stopped: what is done for the same machine, versions and source is not
done again. On a machine that does other work too, only the ratios within one run mean something.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.load.command_line import command
from bench.parts.command import add_options, execute, figures, write_json
from bench.parts.ledger import Ledger
from bench.parts.part import Part
from bench.reports.plots import can_plot, plot
from bench.reports.serving_report import Level
from bench.reports.tables import columns, first_sound, offline, served, state, table, titled

LEVELS = "1,2,4"
QUICK = "quick"
SERVED = ("closed", "poisson")


COLUMNS = {
    "llm": ("way", "positions", "new_prompt", "known_prompt", "token", "decision"),
    "token2wav": (
        "profile", "audio_seconds", "wall_seconds", "wall_per_audio_second", "cpu_seconds", "first_sound_seconds",
    ),
    "token2wav-parts": ("part", "first_milliseconds", "milliseconds_per_second"),
    "prompt": ("prompt_seconds", "cold_seconds", "warm_seconds", "cold_by_warm"),
    "frontend": ("model", "texts", "work", "median", "p95"),
}  # fmt: skip


def parts(out: Path, model: Path, seconds: float) -> list[Part]:
    """seconds: of each load of the services."""

    def part(name: str, about: str, module: str, *arguments: str) -> Part:
        command = ("-m", module, "--model", str(model), "--json", str(out / f"{name}.json"), *arguments)
        return Part(name, about, (command,), under=str(model))

    def serving(name: str, about: str) -> Part:
        loads = ("--arrivals", name, "--streams", LEVELS, "--seconds", f"{seconds:g}")
        return replace(part(name, about, "bench.serving", *loads), keeps=True, under=f"{model}, {seconds:g} s a load")

    return [
        part("llm", "a prompt and a token, as served and readable", "bench.llm_cost"),
        part("token2wav", "a second of sound by length and profile", "bench.token2wav_cost"),
        part(
            "token2wav-parts",
            "processor time of flow and vocoder, first hop and a second of sound",
            "bench.token2wav_cost",
            "--parts",
        ),
        part("prompt", "first sound of token2wav, its prompt kept and not", "bench.token2wav_cost", "--prompts"),
        _frontend(out),
        serving("closed", "the services over gRPC, callers in a closed loop"),
        serving("poisson", "the services over gRPC, listeners who come by chance"),
        part("offline", "whole sentences in batches", "bench.offline", "--sentences", "8", "--batches", "1,2,4,8"),
    ]


def _frontend(out: Path, *arguments: str, under: str = "") -> Part:
    command = ("-m", "bench.frontend", "--json", str(out / "frontend.json"), *arguments)
    return Part("frontend", "200 characters to token ids", (command,), under=under)


def quick(out: Path, model: Path) -> list[Part]:
    """Whether everything still runs, in seconds: figures that mean little."""
    loads = ("--arrivals", "closed", "--streams", "1", "--seconds", "1", "--json", str(out / "closed.json"))
    command = ("-m", "bench.serving", "--model", str(model), *loads)
    return [
        _frontend(out, "--requests", "5", under=QUICK),
        Part("closed", "the services over gRPC, one asker", (command,), under=QUICK),
    ]


def write(out: Path, parts: Sequence[Part], ledger: Ledger) -> None:
    """Everything that is known so far."""
    results = figures(out, parts)
    loads = {part: [Level(**one) for one in results.get(part, {}).get("levels", [])] for part in SERVED}
    compared = list(ratios(results, loads["closed"]))
    write_json(out, parts, ledger, ratios=dict(compared))
    everyone = [one for part in SERVED for one in loads[part]]
    drawn = bool(everyone) and can_plot()
    if drawn:
        plot(out / "streams.png", ledger.subject.machine, everyone)
    stages = {part: columns(results.get(part, {}).get("costs", []), *names) for part, names in COLUMNS.items()}
    sections = {
        "Ratios within this run": table(("what", "times"), compared),
        "Served over gRPC": served(everyone),
        "The first sound, medians in ms": first_sound(everyone),
        "Speech-token model, ms of CPU": stages["llm"],
        "token2wav": stages["token2wav"],
        "Flow and vocoder, ms of CPU": stages["token2wav-parts"],
        "First sound of token2wav by length of the prompt": stages["prompt"],
        "Sentences in batches, without listeners": offline(results.get("offline", {}).values()),
        "Frontend, ms for 200 characters": stages["frontend"],
        "Plots": ["![streams.png](streams.png)", ""] if drawn else [],
    }
    lines = ["# Measured without a GPU", "", f"{ledger.subject}.", "", *state(parts, ledger), *titled(sections)]
    (out / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def ratios(results: Mapping[str, Any], closed: Sequence[Level]) -> Iterator[tuple[str, float]]:
    """What a busy machine cannot spoil: both sides were measured in the same minutes."""
    ways = {one["way"]: one for one in results.get("llm", {}).get("costs", [])}
    if {"readable", "served"} <= ways.keys():
        for name, what in (
            ("token", "a token"),
            ("known_prompt", "the prompt of a known voice"),
            ("new_prompt", "that of a new one"),
        ):
            yield f"speech-token model, {what}: readable by served", ways["readable"][name] / ways["served"][name]
    costs = {
        (one["profile"], one["audio_seconds"]): one["cpu_seconds"] / one["audio_seconds"]
        for one in results.get("token2wav", {}).get("costs", [])
    }
    for profile in ("continuous", "upstream", "offline"):
        if (profile, 4) in costs and (profile, 16) in costs:
            yield (
                f"token2wav, {profile}: CPU for a second of audio in 16 s by one in 4 s",
                costs[profile, 16] / costs[profile, 4],
            )
    if ("continuous", 16) in costs and ("upstream", 16) in costs:
        yield "token2wav, 16 s: upstream by continuous", costs["upstream", 16] / costs["continuous", 16]
    for one in results.get("prompt", {}).get("costs", []):
        yield (
            f"first sound of token2wav behind a prompt of {one['prompt_seconds']} s: nothing kept by kept",
            one["cold_by_warm"],
        )
    loads = {one.streams: one for one in closed}
    for streams in sorted(set(loads) - {1}) if 1 in loads else ():
        yield f"first sound p50, {streams} streams by one", loads[streams].p50 / loads[1].p50
        yield f"audio a second, {streams} streams by one", loads[streams].audio_per_second / loads[1].audio_per_second


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command("bench.cpu", __doc__)
    add_options(parser, "build/bench/cpu")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="of each load of the services (default: %(default)g)"
    )
    parser.add_argument("--quick", action="store_true", help="a few parts, short: does it run?")
    options = parser.parse_args(arguments)
    out, model = options.out.resolve(), options.model.resolve()
    return execute(options, quick(out, model) if options.quick else parts(out, model, options.seconds), write)


if __name__ == "__main__":
    sys.exit(main())
