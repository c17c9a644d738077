"""The table of faults: which listeners belong to a row, and when a row holds."""

from typing import Any

import pytest

from bench.faults.listeners import CLIENT, HTTP, Listener, Load
from bench.faults.strikes import STRIKES, Fault, all_faults
from bench.faults.table import HEAD, Row, markdown

KILLED_GATEWAY = Fault("gateway", "kill")


def listener(way: str = CLIENT, **became: Any) -> Listener:
    return Listener(way, begun=0.0, row=0, **{"identical": True, "audio": 2.0, "seconds": 1.0, **became})


def row(fault: Fault, *listeners: Listener) -> Row:
    return Row.of(fault, listeners, in_flight=1, seconds=9.0)


def test_every_service_has_every_fault() -> None:
    assert len(all_faults()) == 5 * len(STRIKES) == 35
    assert [fault.kind for fault in all_faults(("llm",), ("roll", "kill"))] == ["kill", "roll"]


@pytest.mark.parametrize(
    ("became", "holds"),
    [({}, True), ({"identical": False}, False), ({"identical": False, "error": "gone"}, False)],
)
def test_every_request_has_to_be_complete_and_the_same(became: dict[str, Any], holds: bool) -> None:
    assert row(Fault("llm", "kill"), listener(), listener(**became)).holds is holds


def test_a_row_without_requests_shows_nothing() -> None:
    assert not row(Fault("llm", "kill")).holds


@pytest.mark.parametrize(
    ("fault", "hit", "cut"),
    [(KILLED_GATEWAY, True, 1), (KILLED_GATEWAY, False, 0), (Fault("gateway", "roll"), True, 0)],
)
def test_only_those_whose_gateway_was_killed_may_be_cut(fault: Fault, hit: bool, cut: int) -> None:
    """A later connection, or another fault of the gateway, has no such excuse."""
    lost = listener(HTTP, identical=False, cut=True, error="cut after 1.00 s", hit=hit)
    found = row(fault, listener(), lost)
    assert (found.cut, found.errors, found.holds) == (cut, 1 - cut, bool(cut))


@pytest.mark.parametrize(("kind", "dry", "within"), [("roll", 0.3, True), ("kill", 0.31, False), ("freeze", 9.0, None)])
def test_the_goal_is_for_kills_and_rolls(kind: str, dry: float, within: bool | None) -> None:
    assert row(Fault("llm", kind), listener(HTTP, dry=dry)).within_goal is within


def test_a_request_belongs_to_the_first_fault_that_it_meets() -> None:
    load = Load(client=None, gateways=list)  # type: ignore[arg-type]
    early, late = listener(), listener()
    load.row, load.under_way = 1, {early}
    assert load.fault() == 1
    load.row, load.under_way = 2, {early, late}
    assert load.fault() == 2
    assert (early.row, late.row) == (1, 2)
    assert early.hit
    assert late.hit


def test_the_table_has_sums_and_what_went_wrong() -> None:
    text = markdown(
        [
            row(Fault("", "none"), listener()),
            row(Fault("llm", "kill"), listener(dry=0.1, resumed=1), listener(HTTP, identical=False, error="gone")),
        ]
    )
    lines = text.splitlines()
    assert lines[0].count("|") == lines[2].count("|") == len(HEAD) + 1
    assert lines[3] == "| llm | kill | 2 | 1 | 1 | 0 | 1 | 0 | 1 | 100 ms | 0 ms |"
    assert "2 of 3 requests complete and identical, 1 errors, 0 cut" in text
    assert "1 of 1 kills and rolls within 300 ms" in text
    assert lines[-1] == "* llm kill: http: gone"
