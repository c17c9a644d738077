"""Streams of the paged engine that end early free everything, and other streams are not
affected.
"""

import asyncio
import random
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from torch import Tensor

from cosyserve.audio.encoding import to_pcm
from cosyserve.errors import Unavailable
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.stream_state import PagedState
from services.token2wav.inputs.request import Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.stream import AcousticStream
from tests.unit.token2wav.gpu.test_paged_decoder import Setup, some, wanted
from tests.unit.token2wav.speaking import batching

SCALE = 1e-5
"""Makes samples of what the remembering flow gives."""


def during_pass(setup: Setup, number: int, work: "threading.Event | PagedState") -> None:
    """During pass `number`: cancel a stream, or wait for an event."""
    run, passes = setup.flow.run, iter(range(1000))

    def interrupted(units: Sequence[Unit], contents: dict[int, list[int]] | None = None) -> Tensor:
        made = run(units, contents)
        if next(passes) == number:
            del setup.flow.run  # and with it what would keep the stream
            work.cancel() if isinstance(work, PagedState) else work.wait(10)
        return made

    setup.flow.run = interrupted  # type: ignore[method-assign]


def test_cancelled_between_two_passes_of_a_step() -> None:
    setup = Setup()
    first, second = setup.start(0), setup.start(0, seed=2)
    said = [some(100, 1), some(100, 2)]
    # four units of the first stream; those of the second are in the next pass
    during_pass(setup, 0, second)
    results = setup.decoder.step(
        [StepInput(first, said[0], 100, final=True), StepInput(second, said[1], 75, final=False)]
    )
    assert results[1] is None
    np.testing.assert_array_equal(results[0].samples, wanted(first, said[0]))
    del first, second, results
    assert setup.all_back


def test_a_leader_that_is_cancelled_while_it_makes_the_prompt_leaves_it_to_its_followers() -> None:
    setup = Setup()
    leader, follower = setup.start(87, "v"), setup.start(87, "v")
    during_pass(setup, 0, leader)
    said = some(40, 3)
    results = setup.decoder.step([StepInput(leader, some(40, 1), 75, False), StepInput(follower, said, 75, False)])
    assert [type(result) for result in results] == [type(None), Decoded]
    del leader, results
    setup.check([follower], [said])
    assert (setup.flow.made, setup.decoder.prompts.states) == ([0, 1, 2, 3, 4, 5], 1)
    del follower
    assert setup.all_back


async def test_closing_during_a_step_ends_every_stream_and_gives_all_back() -> None:
    setup, hold = Setup(), threading.Event()
    setup.flow.scale = SCALE
    during_pass(setup, 0, hold)
    async with batching({Profile.CONTINUOUS: setup.decoder}) as batcher:
        listening = [asyncio.create_task(listen(batcher, voice(30, at), some(60, at).tolist())) for at in range(3)]
        while not setup.flow.made:
            await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.01)
        assert not closing.done()
        hold.set()
        await asyncio.wait_for(closing, 5)
        assert all(isinstance(end, Unavailable) for end in await asyncio.gather(*listening, return_exceptions=True))
    assert setup.all_back


def voice(prompt: int, seed: int, key: str = "") -> Voice:
    return Voice(some(prompt, seed), np.zeros((2 * prompt, 80), np.float32), np.ones(192, np.float32), key)


async def listen(batcher: Batcher, spoken: Voice, tokens: list[int], hang_up: int | None = None) -> bytes:
    """The sound of a sentence whose tokens come in sevens, all of it or `hang_up` pieces."""
    made, seen = b"", 0
    async with AcousticStream(batcher, Sentence(spoken)) as stream:
        for at in range(0, len(tokens), 7):
            await stream.feed(tokens[at : at + 7])
        await stream.finish()
        async for piece in stream:
            made += piece.audio
            seen += 1
            if seen == hang_up:
                break
    return made


@pytest.mark.parametrize("pages", [200, 12], ids=["room for all", "made again"])
async def test_random_hang_ups_change_no_other_stream(pages: int) -> None:
    setup, chance = Setup(pages=pages, prompt_pages=4), random.Random(5)
    setup.flow.scale, setup.flow.most = SCALE, 12
    kinds = [(0, ""), (87, "v"), (87, "v"), (30, "w"), (26, ""), (130, "x")]
    calls = [
        (*kinds[chance.randrange(6)], chance.randrange(1, 150), chance.choice([None, None, 1, 2])) for _ in range(40)
    ]
    ends: list[bytes] = []
    async with batching({Profile.CONTINUOUS: setup.decoder}) as batcher:
        for first in range(0, len(calls), 8):
            group = calls[first : first + 8]
            ends += await asyncio.gather(
                *(
                    listen(batcher, voice(p, p, key), some(count, count).tolist(), hang_up=stop)
                    for p, key, count, stop in group
                )
            )
    for (prompt, _, count, stop), heard in zip(calls, ends, strict=True):
        whole = to_pcm(np.float32(SCALE) * wanted(SimpleNamespace(prompt=some(prompt, prompt)), some(count, count)))  # type: ignore[arg-type]
        assert heard == whole if stop is None else whole.startswith(heard)
    assert setup.all_back
    assert (setup.decoder.recomputed > 0) == (pages == 12)
