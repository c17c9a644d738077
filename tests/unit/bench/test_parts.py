"""A measurement in parts: what is done is not done again, what fails stops nothing else, what is
stopped goes on.
"""

import asyncio
import contextlib
import io
import json
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.parts.ledger import DONE, FAILED, LATE, LEFT_OUT, Ledger
from bench.parts.part import Part, ResultsFile, chosen, together
from bench.parts.progress import Progress, bar
from bench.parts.provenance import Subject, source, subject
from bench.parts.runner import run
from bench.reports.tables import state, table

HERE = Subject("a machine", {"torch": "2"}, "abc", "1")


def note(out: Path, name: str, more: str = "") -> Part:
    """A part that counts how often it was run, in its own file."""
    code = f"""
import json, pathlib, time
path = pathlib.Path({str(out / f"{name}.json")!r})
times = json.loads(path.read_text())["times"] if path.exists() else 0
path.write_text(json.dumps({{"times": times + 1}}))
{more}
"""
    return Part(name, f"counts {name}", (("-c", code),), limit=20.0)


def done(parts: Sequence[Part], ledger: Ledger, budget: float = 60.0) -> str:
    """Run; what was told on the way."""
    output = io.StringIO()
    asyncio.run(run(parts, ledger, budget, Progress(len(parts), 0, output)))
    return output.getvalue()


def times(out: Path, name: str) -> int:
    count = json.loads((out / f"{name}.json").read_text())["times"]
    assert isinstance(count, int)
    return count


def test_a_part_that_fails_stops_no_other_and_is_named(tmp_path: Path) -> None:
    parts = [
        note(tmp_path, "one"),
        note(tmp_path, "two", "print('no such thing'); raise SystemExit(3)"),
        note(tmp_path, "three"),
    ]
    ledger = Ledger.go_on(tmp_path, HERE)
    output = done(parts, ledger)
    assert [ledger.runs[part.name].state for part in parts] == [DONE, FAILED, DONE]
    assert "two: failed" in output
    assert "3 of 3 parts" in output
    text = "\n".join(state(parts, ledger))
    assert "**two: failed**" in text
    assert "no such thing" in text
    assert "| one | counts one |" in text
    assert "no such thing" in (tmp_path / "logs" / "two.log").read_text()


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    failing = tmp_path / "fail"
    failing.touch()
    breaks = f"raise SystemExit({str(failing)!r} if pathlib.Path({str(failing)!r}).exists() else 0)"
    parts = [note(tmp_path, "one"), note(tmp_path, "two", breaks)]
    done(parts, Ledger.go_on(tmp_path, HERE))
    failing.unlink()
    done(parts, Ledger.go_on(tmp_path, HERE))
    # What had failed began anew, without the figures of its first time.
    assert (times(tmp_path, "one"), times(tmp_path, "two")) == (1, 1)
    ledger = Ledger.go_on(tmp_path, HERE)
    assert [run.state for run in ledger.runs.values()] == [DONE, DONE]
    ledger.forget(parts[0])
    done(parts, ledger)
    assert times(tmp_path, "one") == 1


def test_a_part_that_keeps_its_figures_goes_on_from_them(tmp_path: Path) -> None:
    one = note(tmp_path, "one", "raise SystemExit(path.read_text() == json.dumps({'times': 1}))")
    part = Part("one", "", one.commands, keeps=True)
    done([part], Ledger.go_on(tmp_path, HERE))
    done([part], ledger := Ledger.go_on(tmp_path, HERE))
    assert times(tmp_path, "one") == 2
    assert ledger.runs["one"].state == DONE


def test_figures_of_other_conditions_are_not_gone_on_with(tmp_path: Path) -> None:
    short = replace(note(tmp_path, "one"), under="1 s", keeps=True)
    done([short], Ledger.go_on(tmp_path, HERE))
    done([replace(short, under="6 s")], ledger := Ledger.go_on(tmp_path, HERE))
    assert (times(tmp_path, "one"), ledger.runs["one"].under) == (1, "6 s")
    # Left out, it keeps what it has, and under which conditions.
    done([short], Ledger.go_on(tmp_path, HERE), budget=16.0)
    assert (times(tmp_path, "one"), Ledger.go_on(tmp_path, HERE).runs["one"].under) == (1, "6 s")
    done([replace(short, under="6 s")], Ledger.go_on(tmp_path, HERE))
    assert times(tmp_path, "one") == 2


def test_what_has_no_time_left_keeps_what_it_had(tmp_path: Path) -> None:
    part = note(tmp_path, "one", "raise SystemExit(1)")
    done([part], Ledger.go_on(tmp_path, HERE))
    done([part], Ledger.go_on(tmp_path, HERE), budget=16.0)
    assert times(tmp_path, "one") == 1


def test_a_part_whose_measurement_is_stopped_is_named(tmp_path: Path) -> None:
    part, ledger = note(tmp_path, "one", "time.sleep(60)"), Ledger.go_on(tmp_path, HERE)

    async def stopped() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await run([part], ledger, progress=Progress(1, 0, io.StringIO()))

    asyncio.run(stopped())
    assert "**one: stopped**" in "\n".join(state([part], ledger))
    assert ledger.due(part)


def test_a_part_whose_product_is_gone_is_run_again(tmp_path: Path) -> None:
    product = tmp_path / "product"
    part = replace(note(tmp_path, "one", f"open({str(product)!r}, 'a').write('x')"), makes=product)
    for _ in range(2):
        done([part], Ledger.go_on(tmp_path, HERE))
        assert product.read_text() == "x"
    product.unlink()
    done([part], Ledger.go_on(tmp_path, HERE))
    assert product.read_text() == "x"


def test_another_subject_begins_anew(tmp_path: Path) -> None:
    for name in ("notes.json", "report.md", "two.json"):
        (tmp_path / name).write_text("{}")
    Ledger.go_on(tmp_path, HERE, [note(tmp_path, "two")])
    # What is about to be written goes; a directory may hold what is nobody's business here.
    assert not {"report.md", "two.json"} & {path.name for path in tmp_path.iterdir()}
    part = note(tmp_path, "one")
    done([part], Ledger.go_on(tmp_path, HERE))
    assert Ledger.go_on(tmp_path, replace(HERE, commit="another, of the same source")).runs
    for other in (replace(HERE, machine="another"), replace(HERE, versions={"torch": "3"}), replace(HERE, source="x")):
        done([part], Ledger.go_on(tmp_path, HERE))
        assert not Ledger.go_on(tmp_path, other).runs
        assert not (tmp_path / "one.json").exists()
    assert (tmp_path / "notes.json").exists()


def test_a_part_is_stopped_at_its_limit_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); "
        f"open({str(pid)!r}, 'w').write(str(p.pid)); p.wait()"
    )
    slow = Part("slow", "", (("-c", code),), limit=3.0)
    ledger = Ledger.go_on(tmp_path, HERE)
    began = time.monotonic()
    done([slow, note(tmp_path, "next")], ledger)
    assert time.monotonic() - began < 25.0
    assert [ledger.runs[name].state for name in ("slow", "next")] == [LATE, DONE]
    assert "stopped after 3 s" in ledger.runs["slow"].told[-1]
    stat = Path(f"/proc/{int(pid.read_text())}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_what_does_not_fit_into_the_budget_is_left_for_the_next_time(tmp_path: Path) -> None:
    part = note(tmp_path, "one")
    output = done([part], Ledger.go_on(tmp_path, HERE), budget=16.0)
    assert "one: left out" in output
    assert Ledger.go_on(tmp_path, HERE).runs["one"].state == LEFT_OUT
    done([part], ledger := Ledger.go_on(tmp_path, HERE))
    assert ledger.runs["one"].state == DONE


def test_what_needs_a_part_that_failed_is_left_out_until_there_is_what_it_makes(tmp_path: Path) -> None:
    target = tmp_path / "made"
    model = replace(
        note(tmp_path, "model", f"assert __import__('pathlib').Path({str(target)!r}).exists(); raise SystemExit(1)"),
        makes=target,
    )
    speaking, other = replace(note(tmp_path, "speaking"), needs=("model",)), note(tmp_path, "other")
    output = done([model, speaking, other], Ledger.go_on(tmp_path, HERE))
    assert "speaking: left out, model is not done" in output
    assert {name: run.state for name, run in Ledger.go_on(tmp_path, HERE).runs.items()} == {
        "model": FAILED, "speaking": LEFT_OUT, "other": DONE
    }  # fmt: skip
    target.touch()
    done([model, speaking], ledger := Ledger.go_on(tmp_path, HERE))
    assert {name: run.state for name, run in ledger.runs.items()} == {"model": FAILED, "speaking": DONE, "other": DONE}


def test_who_asks_without_a_part_is_not_kept_from_what_needs_it(tmp_path: Path) -> None:
    model, speaking = (
        note(tmp_path, "model", "raise SystemExit(1)"),
        replace(note(tmp_path, "speaking"), needs=("model",)),
    )
    done([model, speaking], Ledger.go_on(tmp_path, HERE))
    done([speaking], ledger := Ledger.go_on(tmp_path, HERE))
    assert ledger.runs["speaking"].state == DONE


def test_parts_that_take_no_times_run_side_by_side() -> None:
    parts = [Part(name, "", (), alone=name.isupper()) for name in ("A", "b", "c", "d", "E", "f")]
    assert [[part.name for part in group] for group in together(parts, 2)] == [["A"], ["b", "c"], ["d"], ["E"], ["f"]]


def test_parts_are_chosen_by_name() -> None:
    parts = [Part(name, "", ()) for name in ("one", "two", "three")]
    assert [part.name for part in chosen(parts, ["three", "one"], [])] == ["one", "three"]
    assert [part.name for part in chosen(parts, [], ["two"])] == ["one", "three"]
    with pytest.raises(ArgumentTypeError, match="there is no part 'four'; there are one, two, three"):
        chosen(parts, ["four"], [])
    parts.append(Part("four", "", (), needs=("one",)))
    assert [part.name for part in chosen(parts, ["four"], [])] == ["one", "four"]
    assert [part.name for part in chosen(parts, ["four"], ["one"])] == ["four"]


def test_figures_are_in_their_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kept.json"
    results = ResultsFile(path)
    results["a"] = 1
    assert json.loads(path.read_text()) == {"a": 1}
    results["b"] = [2]
    assert ResultsFile(path) == {"a": 1, "b": [2]}
    assert [one.name for one in path.parent.iterdir()] == ["kept.json"]


def test_the_source_is_what_runs(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "one.py").write_text("1")
    before = source(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert source(tmp_path) == before
    (tmp_path / "services" / "one.py").write_text("2")
    assert source(tmp_path) != before
    here = subject()
    assert here.same(subject())
    assert here.versions["torch"]
    assert here.machine in str(here)


def test_a_bar_is_never_too_long() -> None:
    assert bar(0.0) == "." * 24
    assert bar(0.5) == "#" * 12 + "." * 12
    assert bar(7.0) == "#" * 24


def test_the_bar_fits_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "50")
    shown = Terminal()
    progress = Progress(2, 1, shown)
    progress.begin("one", 60.0)
    progress.says("one", "what a part says may be much longer than that")
    *_, drawn = shown.getvalue().split("\r")
    assert drawn.startswith("[############............] one ")
    assert len(drawn) == 49


def test_a_table_shows_what_is_missing_as_nothing() -> None:
    assert table(("a", "b"), [(1, 0.12345), (None, 1234.5)]) == [
        "| a | b |",
        "|---|---|",
        "| 1 | 0.123 |",
        "|  | 1234 |",
        "",
    ]
    assert table(("a",), []) == []
