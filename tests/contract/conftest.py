"""A whole system for the tests that only need its public door, started once; and the spans that a
service in this process records.
"""

from collections.abc import Iterator

import pytest

from cosyserve import telemetry
from cosyserve.telemetry import Timing
from tests.stacks.up_process import Up


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """host:port of a public door behind which the fake engines speak."""
    up = Up()
    try:
        yield up.address
    finally:
        code = up.end()
    assert code == 0, up.lines


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[Timing]:
    recorded: list[Timing] = []
    monkeypatch.setattr(telemetry, "record", recorded.append)
    return recorded
