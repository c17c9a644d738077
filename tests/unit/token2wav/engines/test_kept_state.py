"""Step-Audio2's flow by engines, which keep its state: speech as the readable path's in all
profiles, the laws over it, and profiles that cover every block.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.engines.engine_cache import COMPONENTS, FLOW_COMPONENTS, EngineCache
from cosyserve.errors import ModelError, SettingsError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.engines.backend import check_choices
from services.token2wav.engines.chunks import shapes
from services.token2wav.engines.chunks.shapes import Block, chunk_profiles, most_streams
from services.token2wav.engines.shapes import LONGEST_TOKENS, covering
from services.token2wav.flow.flow import Flow, as_prompt
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.inputs.request import MAX_PROMPT_TOKENS, MAX_TOKENS, Growth, Hops, Profile, Sentence
from services.token2wav.loading import load_backend
from tests.stacks.up_process import STEP_AUDIO2, TINY
from tests.unit.token2wav.engines.engines import fake_trt, onnx_backend, trt_backend
from tests.unit.token2wav.speaking import batching, speak, tokens, voice

CONFIG = StepDitConfig.read(ModelDirectory(STEP_AUDIO2))
LENGTH = 110
"""Four blocks and a part: blocks behind the prompt have been dropped."""


@cache
def readable() -> Backend:
    return load_backend("torch", EngineSettings(model=TINY, decoder_model=STEP_AUDIO2, threads=1))


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    folder: Path = tmp_path_factory.mktemp("engines")
    return onnx_backend(folder, decoder_model=STEP_AUDIO2)


def heard(audio: bytes) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.frombuffer(audio, "<i2") / 32768


@pytest.mark.parametrize("profile", list(Profile))
async def test_it_speaks_as_torch_does(engines: Backend, profile: Profile) -> None:
    sentence = Sentence(voice(37), seed=7, profile=profile)
    async with batching(engines.decoders) as graphs, batching(readable().decoders) as plain:
        made, wanted = [heard(await speak(on, sentence, tokens(LENGTH))) for on in (graphs, plain)]
    assert wanted.std() > 0.05
    # The graph's pitch is float32, and phase is its sum over the sentence.
    assert np.abs(made - wanted).max() < 1e-2


async def test_streamed_is_whole_resumed_is_the_tail_and_together_is_one_by_one(engines: Backend) -> None:
    said, spoken = Sentence(voice(20, key="a"), seed=3, hops=Hops(100)), tokens(LENGTH)
    others = [(Sentence(voice(33), seed=4), tokens(60, offset=5)), (Sentence(voice(0), seed=5), tokens(70))]
    async with batching(engines.decoders) as graphs:
        whole = await speak(graphs, said, spoken)
        assert await speak(graphs, replace(said, hops=Hops(30, Growth.EXPONENTIAL)), spoken, message=7) == whole
        assert await speak(graphs, replace(said, start_sample=4801), spoken, message=9) == whole[2 * 4801 :]
        alone = [await speak(graphs, *other) for other in others]
        together = await asyncio.gather(speak(graphs, said, spoken), *(speak(graphs, *other) for other in others))
    assert together == [whole, *alone]
    decoder = engines.decoders[Profile.CONTINUOUS]
    assert isinstance(decoder, ContinuousDecoder)
    assert (decoder.prompts.hits, decoder.prompts.states) == (3, 1)


def test_a_batch_is_its_streams_one_by_one(engines: Backend) -> None:
    """As on a GPU, where streams with pasts of several lengths are rows of one call."""
    decoder: Any = engines.decoders[Profile.CONTINUOUS]
    flow: Flow = decoder._flow
    ids, prompts = torch.tensor(tokens(100)), [voice(20), voice(33), voice(0)]

    def advance(numbers: list[int]) -> list[torch.Tensor]:
        said = [as_prompt(prompts[number]) for number in numbers]
        states, made = [flow.start(each) for each in said], []
        for state, each in zip(states, said, strict=True):
            if each.tokens.numel():
                flow.blocks([state], [each.tokens], [each.tokens[:3]])
        for at in range(0, 75, 25):
            shifted = [ids.roll(-number) for number in numbers]
            made.append(
                flow.blocks(
                    states, [each[at : at + 25] for each in shifted], [each[at + 25 : at + 28] for each in shifted]
                )
            )
        return [torch.cat([block[row] for block in made], dim=1) for row in range(len(numbers))]

    flow.batch_invariant = False
    try:
        together = advance([0, 1, 2])
    finally:
        flow.batch_invariant = True
    for number, mel in enumerate(together):
        torch.testing.assert_close(mel, advance([number])[0], atol=2e-5, rtol=0)


def test_the_state_is_as_large_as_the_readable_ones(engines: Backend) -> None:
    sizes = []
    for backend in (engines, readable()):
        decoder: Any = backend.decoders[Profile.CONTINUOUS]
        flow, prompt = decoder._flow, torch.tensor(tokens(20))
        state = flow.start(as_prompt(voice(20)))
        flow.blocks([state], [prompt], [prompt[:3]])
        sizes.append((state.bytes, decoder.token_bytes, decoder.growth_bytes(MAX_TOKENS)))
    assert sizes[0] == sizes[1]


def blocks() -> "set[tuple[int, int, int]]":
    """Tokens of a call, and those that encoder and estimator keep in front of it."""
    found = set()
    for prompt in range(MAX_PROMPT_TOKENS + 1):
        found.add((prompt or 25, 0, 0))
        for said in (0, 25, 50, 75, 1000, MAX_TOKENS - 1):
            found |= {(count, prompt + said, prompt + min(said, 50)) for count in (1, 25)}
    return found | {(count, 0, 0) for count in range(1, MAX_PROMPT_TOKENS + MAX_TOKENS + 1)}


@pytest.mark.parametrize("component", FLOW_COMPONENTS)
def test_the_profiles_cover_every_block(component: str) -> None:
    built, made = chunk_profiles(component, 4, CONFIG), set[Block]()
    for count, encoded, estimated in blocks():
        past = encoded if component == "encoder" else estimated
        made |= {Block.of(streams, count, past) for streams in range(1, most_streams(count, past, 4) + 1)}
    of: Callable[[Block, StepDitConfig], Any] = getattr(shapes, f"{component}_shapes")
    taken = [covering(built, of(block, CONFIG)) for block in made]
    assert set(taken) == {0, 1, 2}, "the prompt and the blocks behind it are one engine's"
    assert covering(built, of(Block(4, 25, LONGEST_TOKENS + 25), CONFIG)) is None
    behind = {block for block in made if block.streams == 1 and block.tokens == 25}
    assert len(behind) < 60, "each shape is a context and a graph"


def test_what_it_has_not_is_refused_by_name(tmp_path: Path) -> None:
    def load(**chosen: Any) -> None:
        load_backend("onnxruntime", EngineSettings(model=TINY, decoder_model=STEP_AUDIO2, engines=tmp_path, **chosen))

    with pytest.raises(ModelError, match=f"make it with: cosyserve model export .*{STEP_AUDIO2.name} --precision fp16"):
        load(engine_precision="fp16")
    with pytest.raises(SettingsError, match="the flow of Step-Audio2 has no scales for 8-bit products, fp32, fp16"):
        load(engine_precision="fp8")
    with pytest.raises(SettingsError, match="engine_estimator is 'published'; no estimator is published with Step"):
        load(engine_estimator="published")
    check_choices(EngineSettings(engine_precision="fp8"))


async def test_its_plans_speak_over_a_stand_in_for_tensorrt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which refuses shapes outside the profiles."""
    fake_trt(monkeypatch)
    served = trt_backend(tmp_path, decoder_model=STEP_AUDIO2)
    sentence = Sentence(voice(37), seed=7)
    async with batching(served.decoders) as plans, batching(readable().decoders) as plain:
        made, wanted = [heard(await speak(on, sentence, tokens(40))) for on in (plans, plain)]
    assert np.abs(made - wanted).max() < 2e-3
    assert (served.identity.backend, "state kept" in served.identity.precision) == ("tensorrt", True)
    built = {entry.key.component for entry in EngineCache(tmp_path).entries()}
    assert built == {"token2wav.graphs", *(f"token2wav.{component}" for component in COMPONENTS)}
