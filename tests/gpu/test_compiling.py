"""Compiling in parallel, as far as a machine without a GPU can: failures are reported by
name.
"""

from tests.gpu.compiling import compile_all


def test_one_that_fails_is_reported_and_stops_no_other() -> None:
    reported: list[str] = []
    assert set(compile_all(reported.append, ["no such engine", "nor this one"])) == {"no such engine", "nor this one"}
    assert [line.split(" engines")[0] for line in reported] == ["kernels: 1 of 2", "kernels: 2 of 2"]
    assert {line.partition(" s, ")[2] for line in reported} == {
        f"{name}: KeyError: '{name}'" for name in ("no such engine", "nor this one")
    }


def test_one_that_takes_too_long_is_given_up() -> None:
    reported: list[str] = []
    assert compile_all(reported.append, ["no such engine"], limit=0.001) == ["no such engine"]
    assert reported[0].endswith("no such engine: not done after 0 s")
