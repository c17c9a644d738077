"""When a stream that has no room may come again."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.errors import Overloaded
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.scheduling.memory_budget import Budget, Limits
from services.token2wav.scheduling.room_forecast import LONGEST_SECONDS, SHORTEST_SECONDS, RoomForecast, promised_to


def forecast(*seconds: float) -> RoomForecast:
    """After streams that took so long."""
    room = RoomForecast()
    for each in seconds:
        room.complete(each)
    return room


@pytest.mark.parametrize(
    ("missing", "now", "expected"),
    [
        pytest.param(100, 3.0, 1.0, id="the first that ends leaves enough"),
        pytest.param(101, 3.0, 3.0, id="both have to end"),
        pytest.param(300, 3.0, 5.0, id="one that comes later too"),
        pytest.param(100, 10.0, 2.0, id="those that are overdue take a quarter longer"),
        pytest.param(1e6, 3.0, LONGEST_SECONDS, id="no later time is predicted"),
    ],
)
def test_it_follows_from_those_that_hold_the_room(missing: float, now: float, expected: float) -> None:
    held = [(0.0, 100.0), (2.0, 100.0)]
    assert forecast(4.0).seconds(held, missing, 100, now) == pytest.approx(expected)


def test_each_refused_caller_gets_a_later_time_until_one_of_them_is_admitted() -> None:
    room, held = forecast(4.0), [(0.0, 100.0), (2.0, 100.0)]
    assert [room.seconds(held, 100, 100, 3.0) for _ in range(3)] == [1.0, 3.0, 5.0]
    room.opened()
    assert room.seconds(held, 100, 100, 3.0) == 5.0
    assert room.seconds([(8.0, 100.0)], 100, 100, 9.0) == 3.0, "their promises are over"


def test_one_who_asks_again_is_promised_room_once() -> None:
    room, held = forecast(4.0), [(0.0, 100.0), (2.0, 100.0)]
    assert [room.seconds(held, 100, 100, 3.0, utterance=7) for _ in range(50)] == [1.0] * 50
    assert room.seconds(held, 100, 100, 3.0, utterance=8) == 3.0
    assert room.seconds(held, 100, 100, 3.0, utterance=9) == 5.0
    room.opened(8)
    assert room.seconds(held, 100, 100, 3.0, utterance=7) == 3.0, "it comes behind the other one now"


def test_nothing_is_promised_to_one_whose_listener_hears_already() -> None:
    room, held = forecast(4.0), [(0.0, 100.0), (2.0, 100.0)]
    assert [room.seconds(held, 100, 100, 3.0, utterance=None) for _ in range(50)] == [1.0] * 50
    assert room.seconds(held, 100, 100, 3.0, utterance=1) == 1.0
    room.opened(None)
    assert room.seconds(held, 100, 100, 3.0, utterance=None) == 3.0, "what it takes was promised to nobody"
    voice = Voice(np.zeros(0, np.int64), np.zeros((0, 80), np.float32), np.ones(192, np.float32))
    assert promised_to(Sentence(voice, utterance=5)) == 5
    assert promised_to(Sentence(voice, utterance=5, sentence_index=1)) is None
    assert promised_to(Sentence(voice, utterance=5, start_sample=480)) is None


def test_a_sentence_refused_beside_its_request_is_promised_nothing() -> None:
    budget = Budget(Limits(max_streams=9, state_bytes=1000))
    slots, hints = [slot(5.0), slot(6.0)], list[float | None]()
    for follows in (True, True, True, False):
        with pytest.raises(Overloaded) as refused:
            budget.check_room(slots, 300, follows=follows, now=5.5)
        hints.append(refused.value.retry_after)
    assert hints == [0.5] * 4


def test_the_latest_streams_count_most_and_a_second_is_supposed_before_any() -> None:
    assert forecast().seconds([(0.0, 1.0)], 1, 1, 0.5) == 0.5
    assert forecast(0.4).seconds([(0.0, 1.0)], 1, 1, 0.39) == SHORTEST_SECONDS
    assert forecast(4.0, 8.0).seconds([(0.0, 1.0)], 1, 1, 0.0) == pytest.approx(4.4)


def slot(opened: float, tokens: int = 0, **other: Any) -> Any:
    fields = {"follows": None, "bytes": 400, "reserved": 0, "state": None, "is_decoded": True, "cancelled": False}
    return SimpleNamespace(opened_at=opened, tokens=range(tokens), **fields | other)


def test_what_token2wav_refuses_for_want_of_memory_or_of_a_stream_has_the_time() -> None:
    budget = Budget(Limits(max_streams=2, state_bytes=1000))
    for over in (slot(0.0, 50), slot(9.0, 1), slot(9.0, 50, cancelled=True), slot(9.0, 50, is_decoded=False)):
        budget.left(over, 6.0)
    with pytest.raises(Overloaded, match="claim 800 of 1000 bytes") as refused:
        budget.check_room([slot(5.0), slot(8.0, follows=slot(0.0, over=False))], 300, now=9.0)
    assert refused.value.retry_after == 2.0
    with pytest.raises(Overloaded, match="all 2 streams") as refused:
        budget.check_room([slot(5.0), slot(8.0)], 1, now=20.0)
    assert refused.value.retry_after == 3.0
