"""The command line of a measurement in parts."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench import cpu as on_cpu
from bench.gpu import __main__ as on_gpu
from bench.gpu.parts import Plan, parts
from bench.parts.command import add_options, execute
from bench.parts.ledger import Ledger
from bench.parts.part import Part, chosen
from bench.parts.provenance import Subject
from cosyserve.engines.gpu_facts import Gpu

PARTS = [Part("good", "does nothing", (("-c", ""),)), Part("bad", "fails", (("-c", "raise SystemExit(1)"),))]


def main(out: Path, *arguments: str) -> tuple[int, list[str]]:
    """Exit status, and the states that the report received."""
    parser = argparse.ArgumentParser()
    add_options(parser, str(out))
    states: list[str] = []

    def report(out: Path, parts: Sequence[Part], ledger: Ledger) -> None:
        states.extend(f"{name} {run.state}" for name, run in ledger.runs.items())

    return execute(parser.parse_args(arguments), PARTS, report, lambda: Subject("machine", {}, "abc", "")), states


def test_the_status_says_whether_all_is_done(tmp_path: Path) -> None:
    assert main(tmp_path, "--part", "good") == (0, ["good done"])
    assert main(tmp_path) == (1, ["good done", "bad failed"])
    assert main(tmp_path, "--without", "bad", "--fresh") == (0, ["bad failed", "good done"])
    assert main(tmp_path, "--report") == (0, ["bad failed", "good done"])


def test_what_cannot_be_asked_for_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path, "--part", "ugly") == (2, [])
    assert "there is no part 'ugly'; there are good, bad" in capsys.readouterr().err
    assert main(tmp_path / "nothing", "--report") == (2, [])


@pytest.mark.parametrize("listed", [on_cpu.main, on_gpu.main], ids=["cpu", "gpu"])
def test_parts_can_be_listed_anywhere(
    listed: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(["--list", "--out", str(tmp_path / "none")]) == 0
    assert "closed" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_a_gpu_that_does_not_report_its_memory_is_too_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(on_gpu, "gpus", lambda: [Gpu("a GPU", (9, 0), "1", 0, 0)])
    assert on_gpu.main(["--part", "ceilings"]) == 2
    assert "0 bytes of GPU memory are free" in capsys.readouterr().err


def test_what_speaks_needs_the_model() -> None:
    every = parts(Plan(Path("out"), Path("model"), 150_000_000_000))
    speaking = {part.name for part in every if any("--model" in command for command in part.commands)}
    assert speaking == {part.name for part in every if part.needs == ("prepare",)}
    assert [part.name for part in chosen(every, ["closed", "poisson"], [])] == ["prepare", "closed", "poisson"]


def test_the_quick_form_is_not_taken_for_the_whole() -> None:
    out, model = Path("out"), Path("model")
    whole = {part.name: part.under for part in on_cpu.parts(out, model, 1.0)}
    assert all(part.under != whole[part.name] for part in on_cpu.quick(out, model))
