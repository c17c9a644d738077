"""Law: with the decoder of Step-Audio2 behind the tokens of a CosyVoice2 model a cached prompt
changes nothing, and what its flow keeps is what a pass over everything may see.
"""

import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest
import torch

from cosyserve.errors import InternalFault
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.interface import StepInput
from services.token2wav.flow.attention import Mask
from services.token2wav.flow.flow import Flow, as_prompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.past import PROMPT_AND_NEWEST
from services.token2wav.flow.stream_cache import CachedPass, StreamCache
from services.token2wav.inputs.chunking import Grid
from services.token2wav.inputs.request import MAX_TOKENS, Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.stream import AcousticStream
from tests.stacks.up_process import STEP_AUDIO2, TINY
from tests.unit.token2wav.speaking import batching, pieces, speak, tokens, until, voice

LENGTH = 90
"""Three blocks and a part: the first block behind the prompt has been dropped for the last one."""


@pytest.fixture(scope="module")
def backend() -> Backend:
    settings = EngineSettings(model=TINY, decoder_model=STEP_AUDIO2, threads=1, widest_step=8)
    return load_backend("torch", settings)


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(ModelDirectory(STEP_AUDIO2), torch.device("cpu"))


@pytest.fixture
async def batcher(backend: Backend) -> AsyncIterator[Batcher]:
    async with batching(backend.decoders) as running:
        yield running


async def test_hops_lie_behind_the_prompt(backend: Backend) -> None:
    """The vocoder holds back 20 frames of the first hop's 50, whatever the prompt."""
    async with batching(backend.decoders, hold_seconds=0.0) as batcher:
        made = await pieces(batcher, Sentence(voice(37), seed=7), tokens(LENGTH))
    assert [piece.hop.end for piece in made] == [25, 50, 75, 90]
    assert [piece.samples.size for piece in made][:2] == [480 * (50 - 20), 480 * 50]


async def test_request_n_is_request_1_and_who_hangs_up_leaves_nothing(backend: Backend) -> None:
    said, spoken = Sentence(voice(20), seed=9), tokens(LENGTH)
    async with batching(backend.decoders) as batcher:
        first = await speak(batcher, said, spoken)
        async with AcousticStream(batcher, Sentence(voice(33), seed=2)) as left:
            await left.feed(spoken)
            await anext(aiter(left))
        await until(lambda: not batcher.stats().streams)
        assert batcher.stats().state_bytes == 0
        assert await speak(batcher, said, spoken) == first


async def test_fewer_steps_are_streamed_as_whole_and_no_prompt_state_is_mixed(backend: Backend) -> None:
    plain, spoken = Sentence(voice(20, "a prompt"), seed=3), tokens(60)
    async with batching(backend.decoders) as batcher:
        ten, six = [await speak(batcher, said, spoken) for said in (plain, plain.in_steps(6))]
        longer = Sentence(plain.voice, seed=3, hops=Hops(first_hop_tokens=60)).in_steps(6)
        assert await speak(batcher, longer, spoken) == six != ten
        assert await speak(batcher, plain, spoken) == ten


async def test_a_cached_prompt_changes_nothing(backend: Backend, batcher: Batcher) -> None:
    decoder = backend.decoders[Profile.CONTINUOUS]
    assert isinstance(decoder, ContinuousDecoder)
    plain = await speak(batcher, Sentence(voice(20), seed=3), tokens(30))
    said, before = Sentence(voice(20, key="a"), seed=3), decoder.prompts
    for _ in range(2):
        assert await speak(batcher, said, tokens(30)) == plain
    assert (decoder.prompts.hits - before.hits, decoder.prompts.states - before.states) == (1, 1)


def test_a_batch_is_its_streams_one_by_one(flow: Flow) -> None:
    """As on a GPU, where the blocks of several streams are rows of one batch."""
    ids = torch.tensor(tokens(100))
    voices = [as_prompt(voice(20)), as_prompt(voice(20)), as_prompt(voice(33))]
    offsets = [0, 7, 3]

    def advance(numbers: list[int]) -> list[list[torch.Tensor]]:
        states = [flow.start(voices[number]) for number in numbers]
        grids = [Grid(len(voices[number].tokens), whole_prompt=True) for number in numbers]
        mels: list[list[torch.Tensor]] = [[] for _ in numbers]
        for block in range(3):
            given = [torch.cat((voices[number].tokens, ids.roll(-offsets[number]))) for number in numbers]
            ends = [grid.prompt + 25 * block for grid in grids]
            made = flow.blocks(
                states,
                [each[state.position : end] for each, state, end in zip(given, states, ends, strict=True)],
                [each[grid.lookahead(end)] for each, grid, end in zip(given, grids, ends, strict=True)],
            )
            for mel, kept in zip(made, mels, strict=True):
                assert mel is not None
                kept.append(mel)
        return mels

    flow.batch_invariant = False
    try:
        together = advance([0, 1, 2])
    finally:
        flow.batch_invariant = True
    for number, mels in enumerate(together):
        for mel, alone in zip(mels, advance([number])[0], strict=True):
            torch.testing.assert_close(mel, alone, atol=2e-5, rtol=0)


def test_what_is_kept_is_what_a_masked_pass_sees(flow: Flow) -> None:
    """One Euler step in blocks, and over all frames at once under a mask: the prompt, the block
    itself and the two before it.
    """
    prompt, blocks = 40, 5
    frames = prompt + 50 * blocks
    inputs = torch.randn(2, frames, 320, generator=torch.Generator().manual_seed(1))
    estimator = flow.estimator
    times = estimator.times(estimator.time_embedding(torch.tensor([0.3])))
    borders = [0, *range(prompt, frames + 1, 50)]
    allowed = torch.zeros(frames, frames, dtype=torch.bool)
    for at, (first, end) in enumerate(itertools.pairwise(borders)):
        allowed[first:end, :prompt] = True
        allowed[first:end, borders[max(at - 2, 0)] : end] = True
    with torch.inference_mode():
        whole = estimator.velocity(inputs, times, CachedPass.whole(2), Mask(torch.ones(2, frames, 1), allowed))
        past, made = StreamCache(), []
        for first, end in itertools.pairwise(borders):
            kept = CachedPass([past], 2)
            made.append(estimator.velocity(inputs[:, first:end], times, kept))
            past = PROMPT_AND_NEWEST.kept(prompt // 2, kept.after()[0])
            assert past.frames <= prompt + 100
    torch.testing.assert_close(torch.cat(made, dim=1), whole, atol=2e-5, rtol=0)


async def test_the_memory_of_the_longest_sentence_is_bounded(backend: Backend) -> None:
    """All that grows behind the second block is the encoder's share."""
    decoder = backend.decoders[Profile.CONTINUOUS]
    assert isinstance(decoder, ContinuousDecoder)
    state = decoder.start(Sentence(voice(20)))
    said, held = np.array(tokens(400)), []
    while state.position < 20 + 375:
        decoder.step([StepInput(state, said, state.reach(420), final=False)])
        held.append(state.flow.bytes)
    early, late = held[4], held[-1]
    assert late - early == 50 * (len(held) - 5) * decoder._flow.config.encoder_bytes_per_frame
    assert decoder.growth_bytes(MAX_TOKENS) < MAX_TOKENS * decoder.token_bytes / 10


def test_an_hour_of_text_holds_no_more_than_its_longest_sentence(flow: Flow) -> None:
    """What the flow keeps of 90 sentences of 40 seconds, one after another, and of the longest
    sentence that there may be; in five Euler steps, which is half of the state.
    """
    said, ids = as_prompt(voice(75)), torch.tensor(tokens(MAX_TOKENS))
    first = flow.start(said, 5)
    flow.blocks([first], [said.tokens], [said.tokens[:3]])

    def peak(length: int) -> int:
        state, most = flow.fork(first), 0
        for at in range(0, length, 25):
            flow.blocks([state], [ids[at : at + 25]], [ids[at + 25 : at + 28] if at + 25 < length else ids[:0]])
            most = max(most, state.bytes)
        return most

    sentences = [peak(1000) for _ in range(90)]
    longest, frame = peak(MAX_TOKENS), flow.config.state_bytes_per_frame() // 2
    print(f"prompt {first.bytes}, an hour {max(sentences)}, the longest {longest}; all kept {2 * MAX_TOKENS * frame}")
    assert set(sentences) == {sentences[0]}
    assert longest < first.bytes + 0.15 * 2 * MAX_TOKENS * frame


@pytest.mark.parametrize(
    ("prompt", "position", "count", "seen", "words"),
    [
        (20, 0, 10, 3, "the prompt of 20 is one block"),
        (20, 0, 20, 0, "the prompt of 20 is one block"),
        (20, 30, 25, 3, "off the grid"),
        (20, 20, 26, 3, "blocks have 25"),
    ],
)
def test_blocks_off_the_grid_are_refused(prompt: int, position: int, count: int, seen: int, words: str) -> None:
    with pytest.raises(InternalFault, match=words):
        PROMPT_AND_NEWEST.check(prompt, position, count, seen)
