"""The passes for a CPU equal the readable ones within rounding, and a cached prompt changes no
bit.
"""

import asyncio
import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cosyserve.errors import NonFinite
from cosyserve.spec import SPEECH_ROWS
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.cpu.passes import CpuPasses
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.engine.stepper import ReadablePasses
from services.llm.generation.request import Prompt
from services.llm.generation.script import START, TASK, Input, speech_inputs, text_inputs
from tests.unit.llm.tiny_llm import arriving, backend, model, on_engine, readable_engine, sentence, tokens

VOICE = Prompt(tuple(range(20, 60)), tuple(range(1000, 1045)))
CACHE_BYTES = 1 << 24


@pytest.fixture(autouse=True)
def no_gradient() -> Iterator[None]:
    with torch.inference_mode():
        yield


def slot(on: SpeechTokenModel) -> SequenceCache:
    return SequenceCache.reserve(on.config, 800, on.device)


def prompt(*text: int) -> list[Input]:
    return [START, *text_inputs(VOICE.text_ids + text), TASK, *speech_inputs(VOICE.speech_tokens)]


def close(mine: np.ndarray, reference: np.ndarray) -> None:
    np.testing.assert_allclose(mine, reference, atol=1e-4, rtol=0)


@pytest.mark.parametrize("of_voice", [0, 1 + len(VOICE.text_ids)])
@pytest.mark.parametrize("text_ids", [1, 30, 220])
def test_prompt_and_tokens_are_the_readable_ones(text_ids: int, of_voice: int) -> None:
    """220: more positions than run at once."""
    decoder = model()
    passes, reference = CpuPasses(decoder, CACHE_BYTES), ReadablePasses(decoder)
    mine, theirs = slot(decoder), slot(decoder)
    inputs = prompt(*range(60, 60 + text_ids))
    close(passes.scores(inputs, mine, of_voice), reference.scores(inputs, theirs, 0))
    for token in (5, 600, 6000, 5, 77, 6560):
        close(
            passes.scores(speech_inputs([token]), mine, of_voice), reference.scores(speech_inputs([token]), theirs, 0)
        )
    # Text that arrives later: several positions behind others.
    more = [*text_inputs([7, 8, 9, 10, 11]), TASK]
    close(passes.scores(more, mine, of_voice), reference.scores(more, theirs, 0))
    assert mine.length == theirs.length == len(inputs) + 6 + len(more)
    filled = slice(0, mine.length)
    torch.testing.assert_close(mine.keys[:, :, filled], theirs.keys[:, :, filled], atol=1e-4, rtol=0)
    torch.testing.assert_close(mine.values[:, :, filled], theirs.values[:, :, filled], atol=1e-4, rtol=0)


@pytest.mark.parametrize("text_ids", [1, 2, 17])
def test_a_kept_prompt_changes_no_bit(text_ids: int) -> None:
    decoder = model()
    warm, cold = CpuPasses(decoder, CACHE_BYTES), CpuPasses(decoder, 0)
    of_voice, inputs = 1 + len(VOICE.text_ids), prompt(*range(text_ids))
    warm.scores(prompt(290, 291, 292), slot(decoder), of_voice)
    assert (len(warm.prompts), len(cold.prompts)) == (1, 0)
    cached, new = slot(decoder), slot(decoder)
    for step in (inputs, speech_inputs([5]), speech_inputs([600])):
        assert np.array_equal(warm.scores(step, cached, of_voice), cold.scores(step, new, of_voice))
    assert (len(warm.prompts), len(cold.prompts)) == (1, 0)


def test_inputs_that_are_all_of_the_voice_are_run() -> None:
    """A text stream whose prompt has all its speech paired begins after the prompt's last token."""
    decoder = model()
    passes, inputs = (
        CpuPasses(decoder, CACHE_BYTES),
        [START, *text_inputs(VOICE.text_ids), *speech_inputs(VOICE.speech_tokens)],
    )
    first, again = (passes.scores(inputs, slot(decoder), len(inputs)) for _ in range(2))
    close(first, ReadablePasses(decoder).scores(inputs, slot(decoder), 0))
    assert np.array_equal(first, again)
    assert len(passes.prompts) == 1


async def test_a_cached_voice_prompt_changes_no_token() -> None:
    text = list(range(30, 41))
    async with backend() as often, backend(prompt_states_mib=0) as uncached:

        async def spoken(engine: TorchBackend) -> list[list[int]]:
            whole = [tokens(engine, sentence(seed, prompt=VOICE)) for seed in range(3)]
            streamed = [
                tokens(engine, sentence(seed, prompt=VOICE, text=arriving(text[:6], text[6:]))) for seed in range(2)
            ]
            return list(await asyncio.gather(*whole, *streamed))

        first = await spoken(often)
        assert first == await spoken(often) == await spoken(uncached)
        assert len({tuple(generated) for generated in first}) == 5


async def test_numbers_that_are_not_finite_end_the_sentence_and_no_other(recwarn: pytest.WarningsRecorder) -> None:
    decoder = model()
    tables = tuple(table.clone() for table in decoder.tables)
    tables[1][77] = torch.inf
    tables[2][:] = torch.where(torch.arange(len(tables[2]))[:, None] == 77, torch.nan, tables[2])
    broken = dataclasses.replace(decoder, tables=tables)
    passes = CpuPasses(broken, CACHE_BYTES)
    async with on_engine(readable_engine(broken, Limits(running=4, waiting=4), passes)) as served:
        with pytest.raises(NonFinite, match="at token 0"):
            await tokens(served, sentence(1, text=(77, 1)))
        with pytest.raises(NonFinite, match="at token 0"):
            await tokens(served, sentence(1, prompt=Prompt((), (77,))))
        assert await tokens(served, sentence(1))
    cache = slot(broken)
    passes.scores(prompt(1), cache, 0)
    scores = passes.scores(speech_inputs([77]), cache, 0)
    assert scores.shape == (SPEECH_ROWS,)
    assert not np.isfinite(scores).any()
    assert not recwarn.list
