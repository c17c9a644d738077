"""The engines on a CUDA device against the reference vectors and the CPU, and fused steps against
the readable path, in float32.
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.llm.engine.stepper import Alone
from services.llm.engine.weights import ServedModel
from services.llm.generation.request import Generation, Profile, Prompt, Sampling
from services.llm.generation.requested_script import positions_of_whole_text
from services.llm.generation.sampling import GreedyChooser
from services.llm.generation.script import WholeText
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.vocoder.hift_vocoder import load_hift
from tests.unit.llm.tiny_llm import PROMPT, arriving, backend, model, sentence, tokens, tokens_alone

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.usefixtures("kernels"),
]
TEXT = list(range(20, 31))


def streamed(seed: int, replay: tuple[int, ...] = ()) -> Generation:
    text = arriving(*(TEXT[at : at + 3] for at in range(0, len(TEXT), 3)))
    return sentence(
        seed, text=text, prompt=PROMPT, sampling=Sampling(seed=seed, profile=Profile.CONTINUOUS), replay=replay
    )


async def test_whole_text() -> None:
    generations = [sentence(seed, words=1 + seed % 3) for seed in range(24)]
    async with backend(device="cuda", gpu_precision="float32", max_sequences=16) as served:
        together = await asyncio.gather(*(tokens(served, generation) for generation in generations))
        alone = [await tokens(served, generation) for generation in generations]
    slow = [tokens_alone(model(), generation) for generation in generations]
    # A draw between two ids may fall on the other side of a rounded sum: once in some ten thousand
    # tokens.
    assert sum(a != b for a, b in zip(together, alone, strict=True)) <= 1
    assert sum(a != b for a, b in zip(together, slow, strict=True)) <= 1


async def test_arriving_text_and_replay() -> None:
    async with backend(device="cpu") as slow, backend(device="cuda", gpu_precision="float32") as served:
        for seed in range(3):
            expected = await tokens(slow, streamed(seed))
            assert await tokens(served, streamed(seed)) == expected
            half = tuple(expected[: len(expected) // 2])
            assert await tokens(served, streamed(seed, half)) == expected[len(half) :]


async def test_bfloat16_speaks_to_the_end() -> None:
    async with backend(device="cuda", max_sequences=8) as served:
        assert "bfloat16" in served.identity.precision
        made = await asyncio.gather(*(tokens(served, sentence(seed)) for seed in range(8)))
    assert all(6 <= len(one) <= 60 for one in made)


GOLDEN = Path(__file__).parents[1] / "golden"
BUNDLE, BUNDLE3 = ModelDirectory(GOLDEN / "tiny"), ModelDirectory(GOLDEN / "tiny3")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def arrays(name: str, bundle: ModelDirectory = BUNDLE) -> dict[str, np.ndarray]:
    with np.load(bundle.path / name) as stored:
        return {key: stored[key] for key in stored.files}


@pytest.mark.parametrize("bundle", [BUNDLE, BUNDLE3], ids=["unet", "dit"])
def test_flow_block_by_block(bundle: ModelDirectory) -> None:
    reference = arrays("flow_mel.npz", bundle)
    prompt, new = (torch.from_numpy(reference[key][0]).long() for key in ("prompt_token", "token"))
    voice = VoicePrompt(
        prompt, torch.from_numpy(reference["prompt_feat"][0]), torch.from_numpy(reference["spk_embedding"][0])
    )
    flow = load_flow(bundle, CUDA)
    tokens, state = torch.cat([prompt, new]), flow.start(voice)
    mels: list[Any] = []
    for begin in range(0, len(tokens), CHUNK_TOKENS):
        end = begin + CHUNK_TOKENS
        mels += flow.blocks([state], [tokens[begin:end]], [tokens[end : end + LOOKAHEAD_TOKENS]])
    found = torch.cat(mels, dim=1)[:, 2 * len(prompt) :].cpu()
    torch.testing.assert_close(found, torch.from_numpy(reference["mel_streaming_finalize"][0]), rtol=0, atol=1e-4)


def test_speech_tokens() -> None:
    reference = arrays("llm.npz")
    model = ServedModel.read(BUNDLE.path).load(CUDA)
    prompt = Prompt(tuple(reference["prompt_text_ids"][0].tolist()), tuple(reference["prompt_speech_ids"][0].tolist()))
    text = tuple(reference["text_ids"][0].tolist())
    script = WholeText(prompt, text, Profile.UPSTREAM, GreedyChooser())
    assert (
        Alone(model, script, positions_of_whole_text(prompt, len(text), limit=1024)).run()
        == reference["greedy_tokens"].tolist()
    )


def test_phases_add_up_as_on_the_cpu() -> None:
    f0 = torch.rand((1, 2000), generator=torch.Generator().manual_seed(0)) * 300 + 60
    found = [
        load_hift(BUNDLE, device).source.waves(f0.to(device), None, ended=True)[2].turns.cpu() for device in (CPU, CUDA)
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-9)


def test_vocoder_renders_as_the_cpu_does() -> None:
    mel = torch.from_numpy(arrays("flow_mel.npz")["mel_offline"][0])
    cpu, cuda = (load_hift(BUNDLE, torch.device(name)).offline(mel.to(name), 3, 0).cpu() for name in ("cpu", "cuda"))
    torch.testing.assert_close(cuda, cpu, rtol=0, atol=2e-4)
