"""A measurement in parts: what is done is not done again, what fails stops nothing else, what is
stopped goes on.
"""

import asyncio
import contextlib
import io
import json
import time
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

import pytest

from bench.parts.ledger import DONE, FAILED, LATE, LEFT_OUT, Ledger
from bench.parts.part import Part, chosen, together
from bench.parts.progress import Progress
from bench.parts.provenance import Subject, source, subject
from bench.parts.runner import run
from bench.reports.tables import state

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


def done(out: Path, *parts: Part, budget: float = 60.0, forget: bool = False) -> tuple[Ledger, str]:
    """Run what is due; the ledger, and what was shown on the way."""
    ledger, shown = Ledger.go_on(out, HERE), io.StringIO()
    for part in parts if forget else ():
        ledger.forget(part)
    asyncio.run(run(parts, ledger, budget, Progress(len(parts), 0, shown)))
    return ledger, shown.getvalue()


def times(out: Path, name: str = "one") -> int:
    return int(json.loads((out / f"{name}.json").read_text())["times"])


def states(out: Path) -> dict[str, str]:
    return {name: run.state for name, run in Ledger.go_on(out, HERE).runs.items()}


def test_a_part_that_fails_stops_no_other_and_is_named(tmp_path: Path) -> None:
    fails = note(tmp_path, "two", "print('no such thing'); raise SystemExit(3)")
    parts = [note(tmp_path, "one"), fails, note(tmp_path, "three")]
    ledger, output = done(tmp_path, *parts)
    assert states(tmp_path) == {"one": DONE, "two": FAILED, "three": DONE}
    text, log = "\n".join(state(parts, ledger)), (tmp_path / "logs" / "two.log").read_text()
    for said, where in (
        ("two: failed", output),
        ("3 of 3 parts", output),
        ("**two: failed**", text),
        ("no such thing", text),
        ("| one | counts one |", text),
        ("no such thing", log),
    ):
        assert said in where


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    failing = tmp_path / "fail"
    failing.touch()
    breaks = f"raise SystemExit({str(failing)!r} if pathlib.Path({str(failing)!r}).exists() else 0)"
    parts = [note(tmp_path, "one"), note(tmp_path, "two", breaks)]
    done(tmp_path, *parts)
    failing.unlink()
    done(tmp_path, *parts)
    # The part that had failed began again, without the figures of its first time.
    assert (times(tmp_path, "one"), times(tmp_path, "two")) == (1, 1)
    assert states(tmp_path) == {"one": DONE, "two": DONE}
    done(tmp_path, parts[0], forget=True)
    assert times(tmp_path, "one") == 1


def test_a_part_that_keeps_its_figures_goes_on_from_them(tmp_path: Path) -> None:
    one = note(tmp_path, "one", "raise SystemExit(path.read_text() == json.dumps({'times': 1}))")
    for _ in range(2):
        done(tmp_path, replace(one, keeps=True))
    assert (times(tmp_path), states(tmp_path)) == (2, {"one": DONE})


def test_figures_of_other_conditions_are_not_gone_on_with(tmp_path: Path) -> None:
    short = replace(note(tmp_path, "one"), under="1 s", keeps=True)
    long = replace(short, under="6 s")
    done(tmp_path, short)
    done(tmp_path, long)
    assert (times(tmp_path), Ledger.go_on(tmp_path, HERE).runs["one"].under) == (1, "6 s")
    # Left out, it keeps what it has, and under which conditions.
    done(tmp_path, short, budget=16.0)
    assert (times(tmp_path), Ledger.go_on(tmp_path, HERE).runs["one"].under) == (1, "6 s")
    done(tmp_path, long)
    assert times(tmp_path) == 2


def test_a_part_without_time_is_left_out_and_keeps_what_it_had(tmp_path: Path) -> None:
    part = note(tmp_path, "one", "raise SystemExit(1)")
    done(tmp_path, part)
    _, output = done(tmp_path, part, budget=16.0)
    assert "one: left out" in output
    assert (states(tmp_path), times(tmp_path)) == ({"one": LEFT_OUT}, 1)
    done(tmp_path, note(tmp_path, "one"))
    assert states(tmp_path) == {"one": DONE}


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
    for removed in (False, False, True):
        if removed:
            product.unlink()
        done(tmp_path, part)
        assert product.read_text() == "x"


def test_another_subject_begins_from_nothing(tmp_path: Path) -> None:
    for name in ("notes.json", "report.md", "two.json"):
        (tmp_path / name).write_text("{}")
    Ledger.go_on(tmp_path, HERE, [note(tmp_path, "two")])
    # What is about to be written goes; other files of the directory stay.
    assert not {"report.md", "two.json"} & {path.name for path in tmp_path.iterdir()}
    part = note(tmp_path, "one")
    done(tmp_path, part)
    assert Ledger.go_on(tmp_path, replace(HERE, commit="another, of the same source")).runs
    for other in (replace(HERE, machine="another"), replace(HERE, versions={"torch": "3"}), replace(HERE, source="x")):
        done(tmp_path, part)
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
    began = time.monotonic()
    ledger, _ = done(tmp_path, slow, note(tmp_path, "next"))
    assert time.monotonic() - began < 25.0
    assert states(tmp_path) == {"slow": LATE, "next": DONE}
    assert "stopped after 3 s" in ledger.runs["slow"].told[-1]
    stat = Path(f"/proc/{int(pid.read_text())}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_what_needs_a_part_that_failed_is_left_out_until_there_is_what_it_makes(tmp_path: Path) -> None:
    target = tmp_path / "made"
    model = replace(
        note(tmp_path, "model", f"assert __import__('pathlib').Path({str(target)!r}).exists(); raise SystemExit(1)"),
        makes=target,
    )
    speaking, other = replace(note(tmp_path, "speaking"), needs=("model",)), note(tmp_path, "other")
    _, output = done(tmp_path, model, speaking, other)
    assert "speaking: left out, model is not done" in output
    assert states(tmp_path) == {"model": FAILED, "speaking": LEFT_OUT, "other": DONE}
    # Asked for by itself it does not need the other.
    alone, _ = done(tmp_path, speaking)
    assert alone.runs["speaking"].state == DONE
    alone.forget(speaking)
    target.touch()
    done(tmp_path, model, speaking)
    assert states(tmp_path) == {"model": FAILED, "speaking": DONE, "other": DONE}


def test_what_cannot_run_here_is_left_out_with_its_reason(tmp_path: Path) -> None:
    ledger, shown = done(tmp_path, replace(note(tmp_path, "one"), prevented="there is no GPU"))
    assert (ledger.runs["one"].state, ledger.runs["one"].told) == (LEFT_OUT, ["there is no GPU"])
    assert "one: left out, there is no GPU" in shown
    assert not (tmp_path / "one.json").exists()


def test_an_answer_in_json_is_the_figures_of_a_part(tmp_path: Path) -> None:
    """Also of a command that fails with one; what is no JSON is none."""
    for name, code, figures in (
        ("good", "print('{\"seen\": 1}')", {"seen": 1}),
        ("bad", "print('{\"seen\": 2}'); raise SystemExit('beyond its limit')", {"seen": 2}),
        ("broken", "print('{'); raise SystemExit('no model')", None),
    ):
        part = Part(name, "answers", (("-c", code),), limit=20.0, answers=True)
        ledger, _ = done(tmp_path, part)
        kept = part.figures(tmp_path)
        assert (json.loads(kept.read_text()) if kept.exists() else None) == figures
        assert ledger.runs[name].state == (DONE if name == "good" else FAILED)
    assert ledger.runs["broken"].told == ["no model"]


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
