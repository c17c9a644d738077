"""Two concurrent sentences of a request: the deadline of the second, and which goes first."""

import queue
import time
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from cosyserve.errors import Overloaded
from services.token2wav.decoders.fake import FakeDecoder
from services.token2wav.inputs.chunking import Hop
from services.token2wav.inputs.request import Profile, Sentence
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.first_chunk_delay import SecondChunkForecast
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.next_step import FIRST_SOUND_SECONDS
from services.token2wav.scheduling.stream_slot import StreamSlot
from tests.unit.token2wav.speaking import voice


def sentence(index: int, utterance: int = 7, left: float = 0.0) -> Sentence:
    return Sentence(voice(0), sentence_index=index, utterance=utterance, listener_seconds=left)


@pytest.fixture
def batcher() -> Batcher:
    """One whose thread is not started, with a clock that stands still: nothing is decoded, waits
    or is timed.
    """
    clock = Mock(spec_set=["now"], **{"now.return_value": 100.0})
    limits = Limits(max_streams=2, state_bytes=1 << 40, reserve_tokens=0)
    return Batcher({Profile.CONTINUOUS: FakeDecoder()}, limits, clock=clock)


def opened(batcher: Batcher, one: Sentence, tokens: int = 0) -> StreamSlot:
    slot = batcher.open(one, queue.Queue().put)
    if tokens:
        batcher.feed(slot, np.zeros(tokens, np.int64))
        batcher.finish(slot)
    return slot


def test_the_second_is_due_when_the_first_has_been_played(batcher: Batcher) -> None:
    first = opened(batcher, sentence(0), tokens=25)
    second = opened(batcher, sentence(1, left=9.0))
    assert (second.follows, second.is_playing) == (first, False)
    assert second.plays_until == pytest.approx(100 + FIRST_SOUND_SECONDS + 1.0)
    first.is_playing, first.plays_until, first._samples_before_held = True, 100.4, 12_000
    second.update_deadline(100.0)
    assert (second.is_playing, second.plays_until) == (True, pytest.approx(100.4 + 0.5))
    second.update_deadline(101.0)  # the player has run dry and waits for the other half
    assert second.plays_until == pytest.approx(101.0 + 0.5)


def test_each_stream_of_a_step_without_memory_has_a_time_of_its_own() -> None:
    clock = Mock(spec_set=["now"], **{"now.return_value": 100.0})
    batcher = Batcher({Profile.CONTINUOUS: FakeDecoder()}, Limits(max_streams=3, state_bytes=1 << 40), clock=clock)
    full, told = Overloaded("no memory left for this step"), queue.Queue[Any]()
    works: list[Any] = [Mock(slot=batcher.open(sentence(0, utterance), told.put)) for utterance in (1, 2, 3)]
    batcher._runner = Mock(**{"run.return_value": full})
    batcher._step(works)
    assert [told.get_nowait().retry_after for _ in works] == [1.0, 2.0, 1.0]
    assert full.retry_after is None


def test_what_the_second_has_delivered_is_played_after_the_first(batcher: Batcher) -> None:
    first = opened(batcher, sentence(0), tokens=25)
    first.is_playing, first.plays_until = True, 100.2
    second = opened(batcher, sentence(1), tokens=25)
    second._plays(np.full(24_000, 0.5, np.float32), 100.0, last=False)
    assert second.plays_until == pytest.approx(100.2 + 1.0 + 1.0)
    first.plays_until, first._samples_before_held = 101.3, 24_000
    batcher.cancel(first)
    second.update_deadline(100.0)
    assert (second.follows, second.plays_until) == (None, pytest.approx(101.3 + 1.0))


@pytest.mark.parametrize(("withholds", "plays_until"), [(True, 101.1), (False, 101.5)])
def test_a_pause_that_is_kept_back_is_played_with_the_next_piece(
    batcher: Batcher, withholds: bool, plays_until: float
) -> None:
    slot = opened(batcher, replace(sentence(0), withholds_silence=withholds), tokens=50)
    pause = np.concatenate([np.full(24_000, 0.5, np.float32), np.zeros(12_000, np.float32)])
    slot._samples_before_held = pause.size
    slot._plays(pause, 100.0, last=False)
    assert slot.plays_until == pytest.approx(plays_until)
    assert slot.expected_end(100.0) == pytest.approx(102.0)
    slot._plays(np.full(24_000, 0.5, np.float32), 100.5, last=False)
    assert slot.plays_until == pytest.approx(102.5)


def test_without_the_first_what_the_caller_says_counts(batcher: Batcher) -> None:
    assert opened(batcher, sentence(1, left=3.0)).plays_until == pytest.approx(103.0)


def test_sentences_without_a_number_follow_none(batcher: Batcher) -> None:
    opened(batcher, sentence(0, utterance=0), tokens=25)
    assert opened(batcher, sentence(1, utterance=0)).follows is None


def test_a_second_attempt_of_the_first_is_what_the_second_follows(batcher: Batcher) -> None:
    lost = opened(batcher, sentence(0), tokens=25)
    second = opened(batcher, sentence(1))
    batcher.cancel(lost)
    again = opened(batcher, sentence(0), tokens=50)
    assert second.follows is again
    second.update_deadline(100.0)
    assert second.plays_until == pytest.approx(100 + FIRST_SOUND_SECONDS + 2.0)


def test_a_request_has_one_place_for_both_its_sentences(batcher: Batcher) -> None:
    opened(batcher, sentence(0, utterance=1))
    opened(batcher, sentence(0, utterance=2))
    assert opened(batcher, sentence(1, utterance=1)).follows is not None
    with pytest.raises(Overloaded, match="all 2 streams"):
        opened(batcher, sentence(0, utterance=3))


def test_who_has_little_left_to_play_goes_before_a_sentence_that_is_begun_early(batcher: Batcher) -> None:
    now = time.monotonic()
    batcher._clock.now.return_value = now  # type: ignore[attr-defined]
    ample = opened(batcher, sentence(0, utterance=1), tokens=28)
    ample.is_playing, ample.plays_until = True, now + 1.5
    short = opened(batcher, sentence(0, utterance=2), tokens=12)
    short.is_playing, short.plays_until, short._samples_before_held = True, now + 0.5, 12 * 960
    next_of_short = opened(batcher, sentence(1, utterance=2), tokens=28)
    for slot in (ample, next_of_short):
        slot.state = slot.decoder.start(slot.sentence)
    works = batcher._next_step.of([ample, next_of_short], now)
    assert works[0].slot is next_of_short
    assert works[0].pending.by == pytest.approx(now + 0.5)


def test_a_first_sentence_that_comes_back_on_this_replica_moves_the_second_by_its_own_length(batcher: Batcher) -> None:
    """The replica that decoded the first one has died; the second was begun here, knowing only what
    its caller said.
    """
    second = opened(batcher, sentence(1, left=1.5))
    first = opened(batcher, sentence(0, left=0.2), tokens=25)
    second.update_deadline(100.0)
    assert second.plays_until == pytest.approx(max(101.5, first.expected_end(100.0)), abs=0.31)
    assert opened(batcher, sentence(2)).plays_until < 103


def test_a_request_under_way_has_a_place_for_a_sentence_in_front_of_one_that_is_there(batcher: Batcher) -> None:
    opened(batcher, sentence(1, utterance=1))
    opened(batcher, sentence(0, utterance=2))
    assert opened(batcher, sentence(0, utterance=1)).followed_by is not None


def test_a_sentence_whose_predecessor_is_over_counts_as_any_other(batcher: Batcher) -> None:
    first = opened(batcher, sentence(0, utterance=1))
    opened(batcher, sentence(1, utterance=1))
    batcher.cancel(first)
    opened(batcher, sentence(0, utterance=2))
    with pytest.raises(Overloaded):
        opened(batcher, sentence(0, utterance=3))


def test_a_sentence_that_is_spoken_is_no_work_in_front_of_the_next(batcher: Batcher) -> None:
    first = opened(batcher, sentence(0), tokens=15)
    second = opened(batcher, sentence(1), tokens=15)
    batcher._costs.add(1, 0.3)
    for slot in (first, second):
        slot.state = slot.decoder.start(slot.sentence)
    forecast = SecondChunkForecast(batcher._costs, batcher._pace)
    alone = forecast.expected(second, [second], 100.0)
    first.waiting_since, first.hop = 100.0, Hop(0, 0, 15, True)
    assert first.is_decoded
    assert forecast.expected(second, [first, second], 100.0) == pytest.approx(alone)
