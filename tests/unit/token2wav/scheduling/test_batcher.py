"""Order, limits and endings of streams, with the fake engine; what a stream reserves when it is
admitted, what is counted for it later, and the limit of the prompt cache.
"""

import asyncio
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from cosyserve.errors import CallersDeadline, CosyserveError, InternalFault, Overloaded, Unavailable
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import ContinuousState
from services.token2wav.decoders.fake import FakeDecoder, FakeState
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.prompt_cache import PromptCache
from services.token2wav.inputs.request import Hops, Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.scheduling.stream_slot import StreamSlot
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.speaking import batching, pieces, speak, tokens, torch_backend, until, voice


class Recording(FakeDecoder):
    """Records which streams shared each step; `fail` is a seed whose steps fail."""

    def __init__(self, widest_step: int = 8, fail: int | None = None, token_seconds: float = 0.0) -> None:
        super().__init__(token_seconds)
        self.widest_step = widest_step
        self.met: list[list[int]] = []
        self._fail = fail

    def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
        seeds = [step_input.state.sentence.seed for step_input in step_inputs]
        self.met.append(seeds)
        if self._fail in seeds:
            raise RuntimeError("planted")
        return super().step(step_inputs)


def sentence(seed: int = 0, prompt: int = 0) -> Sentence:
    return Sentence(voice(prompt), seed=seed)


def arrivals(batcher: Batcher, wanted: Sentence) -> tuple[StreamSlot, "queue.Queue[HopAudio | Exception]"]:
    inbox: queue.Queue[HopAudio | Exception] = queue.Queue()
    return batcher.open(wanted, inbox.put), inbox


async def test_a_stream_that_has_not_sounded_goes_before_one_that_has() -> None:
    decoder = Recording(widest_step=1, token_seconds=0.002)
    async with (
        batching({Profile.CONTINUOUS: decoder}) as batcher,
        AcousticStream(batcher, sentence(1)) as early,
        asyncio.TaskGroup() as group,
    ):
        await early.feed(tokens(200))
        await early.finish()
        group.create_task(_drain(early))
        while len(decoder.met) < 3:
            await asyncio.sleep(0.001)
        begun = len(decoder.met)
        await speak(batcher, Sentence(voice(0), seed=2, hops=Hops(60)), tokens(100))
    first_of_late = next(at for at, met in enumerate(decoder.met) if 2 in met)
    assert first_of_late <= begun + 1
    assert decoder.met[first_of_late : first_of_late + 3] == [[2]] * 3
    assert [1] in decoder.met[first_of_late:]


async def test_streams_are_dropped_when_their_callers_give_up_or_surely_will() -> None:
    fed = threading.Event()

    class Gated(Recording):
        def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
            assert fed.wait(5)
            return super().step(step_inputs)

    decoder = Gated(widest_step=1, token_seconds=0.001)
    async with batching({Profile.CONTINUOUS: decoder}) as batcher:
        fed.set()
        await speak(batcher, sentence(9), tokens(60))  # the batcher learns what a step takes at least
        shortest = batcher._runner.shortest_seconds
        assert shortest > 0
        fed.clear()
        now = time.monotonic()
        block, _ = arrivals(batcher, sentence(4))
        batcher.feed(block, np.zeros(28, np.int64))
        await until(lambda: bool(batcher._in_step))
        waiting = [
            arrivals(batcher, replace(sentence(seed), deadline=deadline))
            for seed, deadline in ((1, now), (2, now + 60.0), (3, None))
        ]
        for slot, _ in waiting:
            batcher.feed(slot, np.zeros(10, np.int64))
            batcher.finish(slot)
        soon = arrivals(batcher, replace(sentence(5), deadline=time.monotonic() + shortest / 2))
        fed.set()
        for (slot, inbox), dropped in zip([*waiting, soon], (True, False, False, True), strict=True):
            arrival = await asyncio.to_thread(inbox.get, timeout=5)
            assert isinstance(arrival, CallersDeadline) is dropped, slot.sentence.seed
    assert not {1, 5} & {seed for met in decoder.met for seed in met}


async def test_an_offline_sentence_waits_for_streams_that_have_work() -> None:
    fed = threading.Event()

    class Gated(Recording):
        def step(self, step_inputs: Sequence[StepInput[FakeState]]) -> list[Decoded | CosyserveError | None]:
            assert fed.wait(5)
            return super().step(step_inputs)

    decoder = Gated(widest_step=1)
    async with batching({Profile.CONTINUOUS: decoder, Profile.OFFLINE: decoder}) as batcher:
        slots = [
            arrivals(batcher, Sentence(voice(0), seed=seed, profile=profile, hops=Hops(100)))
            for seed, profile in ((1, Profile.OFFLINE), (2, Profile.CONTINUOUS), (3, Profile.CONTINUOUS))
        ]
        block, _ = arrivals(batcher, sentence(4))
        batcher.feed(block, np.zeros(28, np.int64))
        for slot, _ in slots:
            batcher.feed(slot, np.zeros(100, np.int64))
            batcher.finish(slot)
        fed.set()
        for _, inbox in slots:
            assert isinstance(await asyncio.to_thread(inbox.get, timeout=5), HopAudio)
    assert [met for met in decoder.met if met != [4]][-1] == [1]
    assert len(decoder.met) == 1 + 4 + 4 + 1


async def test_the_player_that_runs_dry_first_is_served_first_and_a_new_stream_with_it() -> None:
    decoder = Recording(widest_step=8)
    async with batching({Profile.CONTINUOUS: decoder}) as batcher:
        slots = [arrivals(batcher, sentence(seed))[0] for seed in (1, 2)]
        for slot in slots:
            batcher.feed(slot, np.zeros(100, np.int64))
        await until(lambda: all(slot.unread_hops == 2 for slot in slots))
        before = len(decoder.met)
        with batcher._changed:  # so that the engine sees all of it at once
            for slot, left in zip(slots, (9.0, 0.01), strict=True):
                slot.plays_until = time.monotonic() + left
                batcher.taken(slot)
            batcher.feed(arrivals(batcher, sentence(3))[0], np.zeros(28, np.int64))
        await until(lambda: any(1 in met for met in decoder.met[before:]))
    after = decoder.met[before:]
    assert after[0] == [2, 3]
    assert [1] in after[1:]


async def test_a_piece_that_is_held_goes_when_its_time_has_come_and_nothing_else_happens() -> None:
    async with batching({Profile.CONTINUOUS: Recording()}, max_streams=2, hold_seconds=5.0) as batcher:
        batcher._pace.add(1, 0.02)  # 25 more tokens are 0.5 s away
        batcher._costs.add(1, 0.0)
        slot, inbox = arrivals(batcher, sentence(2, prompt=87))
        batcher.feed(slot, np.zeros(16, np.int64))
        await until(lambda: slot.held is not None)
        await asyncio.sleep(0.05)
        assert inbox.empty()
        assert isinstance(await asyncio.to_thread(inbox.get, timeout=2), HopAudio)


async def test_nothing_is_left_of_a_stream_that_hangs_up_while_its_piece_is_held() -> None:
    async with batching({Profile.CONTINUOUS: Recording()}, max_streams=2, hold_seconds=5.0) as batcher:
        batcher._pace.add(1, 0.15)
        arrivals(batcher, sentence(1))
        slot = batcher.open(sentence(2, prompt=87), lambda _: None)
        batcher.feed(slot, np.zeros(16, np.int64))
        await until(lambda: slot.held is not None)
        await until(lambda: not batcher._in_step)
        held, state = weakref.ref(slot.held.samples), weakref.ref(slot.state)
        batcher.cancel(slot)
        assert (held(), state(), batcher.stats().streams) == (None, None, 1)


async def test_streams_that_have_sounded_share_steps() -> None:
    decoder = Recording()
    async with batching({Profile.CONTINUOUS: decoder}) as batcher:
        await asyncio.gather(*(speak(batcher, sentence(seed), tokens(200)) for seed in range(4)))
    assert max(map(len, decoder.met)) == 4


async def test_a_failing_step_ends_its_streams_and_no_other() -> None:
    async with batching({Profile.CONTINUOUS: Recording(widest_step=1, fail=2)}) as batcher:
        bad, good = await asyncio.gather(
            speak(batcher, sentence(2), tokens(50)), speak(batcher, sentence(1), tokens(50)), return_exceptions=True
        )
        said = "decoding failed with RuntimeError; the log of this service has the details"
        assert (type(bad), str(bad), len(good)) == (InternalFault, said, 50 * 960 * 2)
        assert batcher.stats().streams == 0


async def test_a_prompt_that_does_not_fit_is_refused() -> None:
    async with (
        batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=40 * 1024) as batcher,
        AcousticStream(batcher, sentence(prompt=20)),
    ):
        with pytest.raises(Overloaded, match="claim 21504 of 40960 bytes of decoder state and this one needs 21504"):
            AcousticStream(batcher, sentence(prompt=20))


async def test_growth_is_counted() -> None:
    async with batching({Profile.CONTINUOUS: FakeDecoder()}) as batcher:
        await speak(batcher, sentence(), tokens(100))
        stats = batcher.stats()
    assert (stats.peak_state_bytes, stats.state_bytes) == (101 * 1024, 0)


async def test_beyond_the_budget_streams_go_one_after_the_other_and_none_is_lost() -> None:
    """Each of three streams takes 101 KiB in the end; 120 KiB let all of them begin, from then on
    no two grow in one step.
    """
    decoder = Recording()
    async with batching({Profile.CONTINUOUS: decoder}, state_bytes=120 * 1024) as batcher:
        heard = await asyncio.gather(*(speak(batcher, sentence(seed), tokens(100)) for seed in range(3)))
        assert batcher.stats().peak_state_bytes > 120 * 1024
    async with batching({Profile.CONTINUOUS: FakeDecoder()}) as batcher:
        assert heard == [await speak(batcher, sentence(seed), tokens(100)) for seed in range(3)]
    blocks = dict.fromkeys(range(3), 0)
    for met in decoder.met:
        held = sum(1 + 25 * done for done in blocks.values() if 0 < done < 4)
        assert len(met) == 1 or held < 120
        for seed in met:
            blocks[seed] += 1
    assert max(map(len, decoder.met)) > 1


async def test_two_finished_hops_wait_for_a_slow_reader_and_no_more() -> None:
    decoder = Recording()
    async with batching({Profile.CONTINUOUS: decoder}) as batcher:
        slot, inbox = arrivals(batcher, sentence(3))
        batcher.feed(slot, np.zeros(200, np.int64))
        made = [await asyncio.to_thread(inbox.get, timeout=5) for _ in range(2)]
        await speak(batcher, sentence(4), tokens(50))
        assert (sum(3 in met for met in decoder.met), inbox.empty()) == (2, True)
        batcher.taken(slot)
        made.append(await asyncio.to_thread(inbox.get, timeout=5))
        assert [hop.hop.end for hop in made if isinstance(hop, HopAudio)] == [25, 50, 75]


async def test_closing_ends_open_streams_with_unavailable() -> None:
    batcher = Batcher({Profile.CONTINUOUS: FakeDecoder()}, Limits(max_streams=2, state_bytes=1 << 30))
    async with AcousticStream(batcher, sentence()) as stream:
        await asyncio.to_thread(batcher.close)
        with pytest.raises(Unavailable, match="the decoder is closing"):
            await _drain(stream)
        with pytest.raises(Unavailable, match="the decoder is closing"):
            AcousticStream(batcher, sentence())


async def test_timings_name_hop_tokens_frames_and_samples() -> None:
    async with batching({Profile.CONTINUOUS: FakeDecoder()}) as batcher:
        made = await pieces(batcher, sentence(prompt=20), tokens(60))
    flows = [timing for piece in made for timing in piece.timings if timing.name == "token2wav.flow"]
    vocoders = [timing for piece in made for timing in piece.timings if timing.name == "token2wav.vocoder"]
    assert [timing.attributes for timing in flows] == [
        {"hop": 0, "tokens": 25, "frames": 10},
        {"hop": 1, "tokens": 25, "frames": 50},
        {"hop": 2, "tokens": 25, "frames": 50},
        {"hop": 3, "tokens": 5, "frames": 10},
    ]
    assert sum(int(timing.attributes["samples"]) for timing in vocoders) == 60 * 960
    assert all(timing.end_ns >= timing.start_ns for timing in flows + vocoders)


async def _drain(stream: AcousticStream) -> None:
    async for _ in stream:
        pass


async def test_numbers_that_overflow_end_their_stream_and_no_other() -> None:
    loud = voice(20)
    broken = Sentence(Voice(loud.tokens, np.full_like(loud.mel, 1e37), loud.embedding))
    async with batching(torch_backend(widest_step=2).decoders) as batcher:
        bad, good = await asyncio.gather(
            speak(batcher, broken, tokens(30)), speak(batcher, Sentence(voice(20)), tokens(30)), return_exceptions=True
        )
        assert isinstance(bad, InternalFault)
        assert "not finite" in str(bad)
        assert good == await speak(batcher, Sentence(voice(20)), tokens(30))


async def test_nothing_of_a_stream_is_left_when_it_is_over() -> None:
    states: list[weakref.ref[FakeState]] = []

    class Watched(FakeDecoder):
        def start(self, sentence: Sentence) -> FakeState:
            state = super().start(sentence)
            states.append(weakref.ref(state))
            return state

    async with batching({Profile.CONTINUOUS: Watched()}) as batcher:
        await speak(batcher, sentence(), tokens(60))
        async with AcousticStream(batcher, sentence()) as stream:
            await stream.feed(tokens(60))
        await until(lambda: all(state() is None for state in states))
        assert len(states) >= 1


KIB = 1024


async def test_what_is_promised_counts_before_it_is_held() -> None:
    """A prompt of 20 and a reserve of 30 tokens claim 51 KiB each; two fit into 110 KiB though they
    hold 42 KiB.
    """
    async with (
        batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=110 * KIB, reserve_tokens=30) as batcher,
        AcousticStream(batcher, Sentence(voice(20))),
    ):
        async with AcousticStream(batcher, Sentence(voice(20))):
            assert batcher.stats().state_bytes == 42 * KIB
            with pytest.raises(
                Overloaded,
                match=f"claim {102 * KIB} of {110 * KIB} bytes of decoder state and this one needs {51 * KIB}",
            ):
                AcousticStream(batcher, Sentence(voice(20)))
        AcousticStream(batcher, Sentence(voice(20))).close()


async def test_streams_within_their_reserve_stay_within_the_budget() -> None:
    limit = 3 * 101 * KIB
    async with batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=limit, reserve_tokens=100) as batcher:
        heard = await asyncio.gather(*(speak(batcher, Sentence(voice(0), seed=seed), tokens(100)) for seed in range(3)))
        assert batcher.stats().peak_state_bytes <= limit
    assert [len(sound) for sound in heard] == [100 * 960 * 2] * 3


async def test_one_stream_alone_is_always_admitted() -> None:
    async with batching({Profile.CONTINUOUS: FakeDecoder()}, state_bytes=1, reserve_tokens=1000) as batcher:
        assert len(await speak(batcher, Sentence(voice(20)), tokens(60))) == 60 * 960 * 2


def test_a_stream_that_grows_by_tokens_says_how_much() -> None:
    """25 tokens more are at least what the decoder says a token takes, within what the vocoder
    keeps besides.
    """
    decoder = torch_backend().decoders[Profile.CONTINUOUS]
    state = decoder.start(Sentence(voice(0)))
    held = []
    for end in (25, 50, 75):
        # No more tokens than this block needs: none is begun before it is asked for.
        decoder.step([StepInput(state, np.asarray(tokens(end + 3)), end, final=False)])
        held.append(state.bytes)
    assert held[2] - held[1] == pytest.approx(25 * decoder.token_bytes, rel=0.02)


def begun(decoder: ContinuousDecoder, key: str, seed: int = 0) -> ContinuousState:
    """A stream that has done the first 25 tokens of its prompt."""
    state = decoder.start(Sentence(voice(30, key=key), seed=seed))
    if state.position == 0:
        decoder.step([StepInput(state, np.zeros(0, np.int64), 25, final=False)])
    assert state.position == 25
    return state


def test_state_that_the_prompt_cache_dropped_counts_with_the_streams_that_use_it() -> None:
    size = begun(torch_backend().decoders[Profile.CONTINUOUS], "a").flow.bytes  # type: ignore[arg-type]
    decoder = torch_backend(prompt_cache_bytes=size).decoders[Profile.CONTINUOUS]
    first, second = begun(decoder, "a"), begun(decoder, "a", seed=1)
    shared = first.bytes
    assert shared == second.bytes < size
    assert begun(decoder, "b").bytes == shared
    assert first.bytes == second.bytes == shared + size


def test_the_least_recently_used_goes_first() -> None:
    cache, states = PromptCache(100), {name: Mock(bytes=40) for name in "abc"}
    for name in "ab":
        cache.put(name, states[name])
    assert cache.get("a") is states["a"]
    cache.put("c", states["c"])
    assert [name in cache for name in "abc"] == [True, False, True]
    assert cache.bytes == 80


def test_what_does_not_fit_at_all_is_not_kept() -> None:
    cache, small = PromptCache(100), Mock(bytes=10)
    cache.put("small", small)
    cache.put("large", Mock(bytes=101))
    assert [cache.get(name) for name in ("large", "small")] == [None, small]


def test_a_name_covers_the_content_and_no_name_means_not_kept() -> None:
    assert voice(30).state_key == ""
    assert voice(30, key="v").state_key == voice(30, key="v").state_key
    assert len({voice(30, key="v").state_key, voice(31, key="v").state_key, voice(30, key="w").state_key}) == 3


def test_bytes_cannot_move_between_the_parts_of_a_name() -> None:
    long, short = (
        Voice(np.zeros(n, np.int64), np.zeros((0, 80), np.float32), np.zeros(192, np.float32)) for n in (2, 1)
    )
    assert replace(long, key="v").state_key != replace(short, key="v" + 8 * chr(0)).state_key
