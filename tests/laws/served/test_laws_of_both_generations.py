"""The laws heard by a client through all four services and real gRPC, on the reduced model of each
generation, and with the decoder of Step-Audio2 behind the tokens of CosyVoice2: what is spoken
depends on the request alone. The weights are random, so a sentence ends at its length limit, 20
speech tokens for each text id, and the guards are off.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cosyserve.audio.encoding import Encoding
from cosyserve.errors import InvalidRequest, Unavailable
from cosyserve.generations.generation import SilentTokens
from services.llm.generation.request import Generation, Hop
from services.token2wav.inputs.request import Profile
from tests.stacks.calls import heard, one_by_one
from tests.stacks.up_process import STEP_AUDIO2, TINY, TINY3
from tests.stacks.whole_stack import WholeStack, whole_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXT = "Hi."
ARRIVING = "Oh. U?"
WHOLE = {"first_hop_tokens": 100, "growth": "exponential", "max_hop_tokens": 400}
MODES: dict[str, dict[str, str]] = {
    "zero_shot": {"prompt_mode": "zero_shot"},
    "cross_lingual": {"prompt_mode": "cross_lingual"},
    "sft": {"prompt_mode": "sft"},
    "instruct": {"instruction": "Slow."},
}
OFTEN_SILENT = SilentTokens(ids=frozenset(range(3000)), longest_run=1)
"""So many that runs of them are in every sentence of random weights."""


MODELS = {"tiny": (TINY, None), "tiny3": (TINY3, None), "step_audio2": (TINY, STEP_AUDIO2)}
"""The model directory, and that of another flow and vocoder."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(MODELS))
async def stack(request: pytest.FixtureRequest) -> AsyncIterator[WholeStack]:
    """All services on a reduced model in this process."""
    model, decoder_model = MODELS[request.param]
    async with whole_stack(model, decoder_model=decoder_model, guards=False) as running:
        yield running


async def say(stack: WholeStack, text: str = TEXT, **options: Any) -> bytes:
    return await stack.client.synthesize(text, **{"seed": 11, "voice": "zs_a", **options}).read()


async def write(stack: WholeStack, fragments: list[str], **options: Any) -> bytes:
    speech = stack.client.streaming_synthesize(one_by_one(fragments), **{"seed": 11, "voice": "zs_a", **options})
    async with speech:
        return (await heard(speech))[0]


async def test_streamed_is_whole_and_resumed_is_the_tail(stack: WholeStack) -> None:
    whole = await say(stack, **WHOLE)
    assert len(whole) > 24_000
    assert await say(stack, first_hop_tokens=1, growth="fixed") == whole
    assert await say(stack, first_hop_tokens=20, growth="exponential", start_sample=10_001) == whole[20_002:]
    form = {"encoding": Encoding.MULAW, "sample_rate": 8_000}
    assert await say(stack, start_sample=3_001, **form) == (await say(stack, **form, **WHOLE))[3_001:]


@pytest.mark.parametrize("count", [2, 3])
async def test_request_n_is_request_1_and_together_is_one_by_one(stack: WholeStack, count: int) -> None:
    requests = [{"text": "abc"[: 1 + number] + ".", "seed": number} for number in range(count)]
    alone = [await say(stack, **request) for request in requests]
    assert len(set(alone)) == count
    assert list(await asyncio.gather(*(say(stack, **request) for request in requests))) == alone
    assert await say(stack, **requests[0]) == alone[0]


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
async def test_the_cutting_of_arriving_text_is_not_heard(stack: WholeStack, mode: str) -> None:
    whole = await write(stack, [ARRIVING], mode=mode)
    assert len(whole) > 24_000
    assert await write(stack, list(ARRIVING), mode=mode) == whole
    assert await write(stack, [ARRIVING[:3], ARRIVING[3:]], mode=mode, start_sample=10_001) == whole[20_002:]


@pytest.mark.parametrize("names", [tuple(MODES), ("zero_shot", "instruct")], ids=["every", "two"])
async def test_every_mode_speaks_and_is_resumed(stack: WholeStack, names: Sequence[str]) -> None:
    spoken = {}
    for name in names:
        spoken[name] = await say(stack, **MODES[name])
        assert len(spoken[name]) > 24_000, name
        assert await say(stack, start_sample=10_001, **MODES[name], **WHOLE) == spoken[name][20_002:], name
    assert spoken["zero_shot"] == await say(stack)
    assert len(set(spoken.values())) == len(names)


@pytest.mark.parametrize("arrives", [False, True])
async def test_an_engine_that_dies_in_a_sentence_is_not_heard(
    stack: WholeStack, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes over replays the tokens of the sentence on the real weights."""
    generate, died = stack.llm.generate, list[int]()

    async def dying(generation: Generation) -> AsyncGenerator[Hop]:
        count = 0
        async for hop in generate(generation):
            yield hop
            count += len(hop.tokens)
            if not died and count >= 30:
                died.append(count)
                raise Unavailable("gone")

    async def speak() -> bytes:
        return await (write(stack, list(ARRIVING), mode="tokens") if arrives else say(stack))

    undisturbed = await speak()
    monkeypatch.setattr(stack.llm, "generate", dying)
    assert await speak() == undisturbed
    assert died


async def test_a_decoder_that_dies_in_a_sentence_is_not_heard(
    stack: WholeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes over gets all tokens, and the number of samples that were heard."""
    decoder = stack.token2wav.decoders[Profile.CONTINUOUS]
    step, blocks, died = decoder.step, list[int](), list[int]()

    def dying(step_inputs: Sequence[Any]) -> list[Any]:
        results = list(step(step_inputs))
        blocks.append(len(results))
        if not died and len(blocks) > 3:
            died.append(len(blocks))
            return [Unavailable("gone") for _ in results]
        return results

    undisturbed = await say(stack, ARRIVING)
    monkeypatch.setattr(decoder, "step", dying)
    audio, _, summary = await heard(stack.client.synthesize(ARRIVING, seed=11, voice="zs_a"))
    assert (audio, summary.resumptions, len(died)) == (undisturbed, 1, 1)


async def test_an_unknown_special_token_is_named(stack: WholeStack) -> None:
    with pytest.raises(InvalidRequest, match=r"instruction holds <\|nonsense\|>, which is no special token"):
        await say(stack, instruction="Slow <|nonsense|>.")


@pytest.mark.parametrize("model", [TINY, TINY3], ids=["tiny", "tiny3"])
async def test_silences_of_the_real_model_are_shortened_for_any_cutting(model: Path) -> None:
    async with whole_stack(model, guards=False, silent=OFTEN_SILENT) as stack:
        audio, _, summary = await heard(
            stack.client.synthesize(TEXT, seed=11, voice="zs_a", onset="natural", **WHOLE)  # type: ignore[arg-type]
        )
        assert len(audio) == 2 * 960 * summary.speech_tokens
        assert 0 < summary.speech_tokens < 60
        assert await say(stack, onset="natural", first_hop_tokens=1, growth="fixed") == audio
        assert await say(stack, onset="natural", start_sample=10_001) == audio[20_002:]
        written = await write(stack, [ARRIVING], mode="tokens")
        assert await write(stack, list(ARRIVING), mode="tokens", start_sample=5_001) == written[10_002:]
