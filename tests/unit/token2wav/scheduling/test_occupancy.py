"""What the metrics say about the streams of a batcher."""

from typing import Any
from unittest.mock import Mock

import pytest

from services.token2wav.gpu.paged_flow.page_pool import Pages
from services.token2wav.scheduling.occupancy import SAFE_SECONDS, Occupancy


def slot(waits_since: float | None, plays_until: float) -> Any:
    """A stream that plays, and waits for the engine since then, or for tokens."""
    waits = waits_since is not None
    return Mock(
        is_decoded=False,
        unread_hops=0,
        missing_tokens=lambda: 0 if waits else 3,
        decoding=True,
        due_at=waits_since,
        is_playing=True,
        plays_until=plays_until,
    )


def test_nothing_is_waited_for_without_streams() -> None:
    assert Occupancy.of([], [], 16, None, 100.0) == Occupancy(0, 16, 0, 16, 1.0, 0.0)


def test_only_streams_that_wait_for_the_engine_count_for_the_slack() -> None:
    dry, safe, middle = slot(99.0, 97.0), slot(99.5, 160.0), slot(99.8, 100 + SAFE_SECONDS / 2)
    waits_for_tokens = slot(None, 95.0)
    found = Occupancy.of([dry, safe, middle, waits_for_tokens], [dry], 16, None, 100.0)
    assert found.slack == pytest.approx((0 + 1 + 0.5) / 3)
    assert found.queue_age == pytest.approx(0.5), "the oldest one is in the step"
    assert (found.streams, found.pages_used, found.pages) == (4, 4, 16)


def test_pages_are_those_of_the_pool_where_there_is_one() -> None:
    found = Occupancy.of([slot(None, 0.0)], [], 16, (7, 512), 100.0)
    assert (found.pages_used, found.pages) == (7, 512)


def test_pages_that_only_the_prompt_cache_holds_are_not_held_by_streams() -> None:
    pages = Pages(11)
    prompt, own = pages.take(3), pages.take(2)
    assert prompt is not None
    assert own is not None
    assert (pages.held, pages.count) == (5, 10)
    pages.keep(prompt)
    assert pages.held == 5, "a stream still has them, too"
    pages.release(prompt)
    assert pages.held == 2
    pages.release(own)
    pages.drop(prompt)
    assert (pages.held, pages.free) == (0, 10)
