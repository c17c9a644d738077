"""A whole system for the tests that only need its public door, started once."""

from collections.abc import Iterator

import pytest

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
