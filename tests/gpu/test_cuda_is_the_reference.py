"""The engines on a CUDA device against the reference vectors and the CPU, in float32."""

from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.llm.engine.stepper import Alone
from services.llm.engine.weights import ServedModel
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.requested_script import positions_of_whole_text
from services.llm.generation.sampling import GreedyChooser
from services.llm.generation.script import WholeText
from services.token2wav.flow.flow import VoicePrompt, load_flow
from services.token2wav.vocoder.vocoder import load_vocoder

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
TINY = ModelDirectory(Path(__file__).parents[1] / "golden" / "tiny")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(TINY.path / name) as stored:
        return {key: stored[key] for key in stored.files}


def test_flow_block_by_block() -> None:
    reference = arrays("flow_mel.npz")
    prompt, new = (torch.from_numpy(reference[key][0]).long() for key in ("prompt_token", "token"))
    voice = VoicePrompt(
        prompt, torch.from_numpy(reference["prompt_feat"][0]), torch.from_numpy(reference["spk_embedding"][0])
    )
    flow = load_flow(TINY, CUDA)
    tokens, state, mels = torch.cat([prompt, new]), flow.start(voice), []
    for begin in range(0, len(tokens), CHUNK_TOKENS):
        end = begin + CHUNK_TOKENS
        (mel,) = flow.blocks([state], [tokens[begin:end]], [tokens[end : end + LOOKAHEAD_TOKENS]])
        assert mel is not None
        mels.append(mel)
    found = torch.cat(mels, dim=1)[:, 2 * len(prompt) :].cpu()
    torch.testing.assert_close(found, torch.from_numpy(reference["mel_streaming_finalize"][0]), rtol=0, atol=1e-4)


def test_speech_tokens() -> None:
    reference = arrays("llm.npz")
    model = ServedModel.read(TINY.path).load(CUDA)
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
        load_vocoder(TINY, device).source.waves(f0.to(device), None, ended=True)[2].turns.cpu()
        for device in (CPU, CUDA)
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-9)


def test_vocoder_renders_as_the_cpu_does() -> None:
    mel = torch.from_numpy(arrays("flow_mel.npz")["mel_offline"][0])
    cpu, cuda = (load_vocoder(TINY, torch.device(name)).offline(mel.to(name), 3, 0).cpu() for name in ("cpu", "cuda"))
    torch.testing.assert_close(cuda, cpu, rtol=0, atol=2e-4)
