"""Engines that only take time: how long, and what they hand out."""

import random

import pytest

from cosyserve.capacity.report_file import default_profile
from cosyserve.errors import Overloaded
from services.llm.engine.scheduler import Limits
from services.token2wav.gpu.paged_flow.page_pool import Pages
from tools.capacity.timing.device import Device
from tools.capacity.timing.paged_decoder import PagedTimes
from tools.capacity.timing.pod_clock import PodClock
from tools.capacity.timing.timed_llm import TimedLlm

PROFILE = default_profile()


def llm(running: int = 8, waiting: int = 8) -> tuple[PodClock, Device, TimedLlm]:
    clock, device = PodClock(), Device(PROFILE, random.Random(1), jitter=0.0)
    return clock, device, TimedLlm(clock, device, Limits(running=running, waiting=waiting))


def test_a_sentence_alone_takes_its_steps() -> None:
    """A prompt of one chunk, then a step a token, in messages of 16 and 25."""
    clock, _, engine = llm()
    messages: list[tuple[float, int, bool]] = []
    engine.generate(50, 16, 130, lambda new, last: messages.append((clock.now(), new, last)))
    clock.run(1.0)
    step = PROFILE.decode_step(1)
    assert [(new, last) for _, new, last in messages] == [(16, False), (25, False), (9, True)]
    assert [at for at, _, _ in messages] == pytest.approx([PROFILE.prefill + tokens * step for tokens in (16, 41, 50)])
    assert engine.sentences == 0


def test_sentences_that_come_later_share_steps_and_make_the_same_tokens() -> None:
    clock, device, engine = llm()
    made = [0, 0, 0]

    def add(number: int) -> None:
        def deliver(new: int, last: bool) -> None:
            made[number] += new

        engine.generate(75, 16, 130, deliver)

    for number in range(3):
        clock.after(0.0101 * number, lambda number=number: add(number))  # type: ignore[misc]
    clock.after(0.02, lambda: device.decodes(now=True))
    clock.run(1.0)
    assert made == [75, 75, 75]
    assert not device.writing
    shared = engine.busy_seconds
    assert 75 * PROFILE.decode_step(1) < shared < 3 * 75 * PROFILE.decode_step(1) * PROFILE.contention.decode


def test_beside_token2wav_steps_take_longer() -> None:
    ends = []
    for busy in (False, True):
        clock, device, engine = llm()
        device.decoding = busy
        engine.generate(50, 16, 1, lambda new, last: ends.append(clock.now()) if last else None)  # noqa: B023
        clock.run(1.0)
    assert ends[1] == pytest.approx(ends[0] * PROFILE.contention.decode)


def test_places_queue_and_refusal_are_the_scheduler_s() -> None:
    clock, _, engine = llm(running=1, waiting=1)
    ends: list[int] = []
    for number in range(2):
        engine.generate(10, 16, 130, lambda new, last, number=number: ends.append(number))  # type: ignore[misc]
    with pytest.raises(Overloaded):
        engine.generate(10, 16, 130, lambda new, last: None)
    clock.run(1.0)
    assert ends == [0, 1]


def test_a_cancelled_sentence_makes_nothing_more() -> None:
    clock, device, engine = llm()
    heard: list[int] = []
    writing = engine.generate(75, 16, 130, lambda new, last: heard.append(new))
    clock.after(0.02, lambda: engine.cancel(writing))
    clock.run(1.0)
    assert heard == [16]
    assert (engine.sentences, device.writing) == (0, False)


def test_a_stream_without_pages_gives_all_back_and_is_made_again() -> None:
    pool = Pages(4)
    state = PagedTimes(pool, 1, prompt=87, position=75)
    state.grow(125)
    assert (len(state.pages), pool.free, state.recomputing) == (2, 1, False)
    state.grow(200)
    assert (state.pages, pool.free, state.recomputing) == ([], 3, True)
