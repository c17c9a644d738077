"""The flow by engines against recorded outputs of the reference: the offline mel and that of every
streaming call; batches; cancellation.
"""

from functools import cache as kept
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.token2wav.engines.flow import EngineFlow, Prefix
from services.token2wav.engines.prefix_decoder import PrefixDecoder
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.inputs.request import Cancelled, Profile
from tests.unit.token2wav.engines.engines import onnx_backend
from tests.unit.token2wav.speaking import GOLDEN


@kept
def recorded() -> dict[str, Any]:
    with np.load(GOLDEN / "flow_mel.npz") as file:
        return {name: file[name] for name in file.files}


def voice() -> VoicePrompt:
    arrays = recorded()
    tokens, mel, speaker = (
        torch.from_numpy(arrays[name][0]) for name in ("prompt_token", "prompt_feat", "spk_embedding")
    )
    return VoicePrompt(tokens.long(), mel, speaker)


def spoken() -> torch.Tensor:
    return torch.from_numpy(recorded()["token"][0]).long()


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EngineFlow]:
    made = {}
    for precision in ("fp32", "fp16"):
        decoder = onnx_backend(tmp_path_factory.mktemp("engines"), engine_precision=precision).decoders[
            Profile.CONTINUOUS
        ]
        assert isinstance(decoder, PrefixDecoder)
        made[precision] = decoder.flow
    return made


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 5e-5), ("fp16", 2e-2)])
def test_every_call_of_the_recorded_stream(flows: dict[str, EngineFlow], precision: str, tolerance: float) -> None:
    flow, arrays = flows[precision], recorded()
    calls = int(arrays["n_calls"])
    assert calls == 3
    for at in range(calls):
        count, streaming, final = (arrays[f"call{at}_{name}"].item() for name in ("n_tokens", "streaming", "finalize"))
        mel = flow.prefix(voice(), spoken()[: int(count)], streaming=bool(streaming), final=bool(final))
        assert np.abs(mel.numpy() - arrays[f"mel_chunk{at}_full"][0]).max() < tolerance
    assert (
        np.abs(flow.prefix(voice(), spoken(), streaming=False, final=True).numpy() - arrays["mel_offline"][0]).max()
        < tolerance
    )
    finalised = flow.prefix(voice(), spoken(), streaming=True, final=True)
    assert np.abs(finalised.numpy() - arrays["mel_streaming_finalize"][0]).max() < tolerance


def test_every_block_is_the_whole(flows: dict[str, EngineFlow]) -> None:
    """Under streaming masks the head of a prefix is the head of the sentence."""
    flow = flows["fp32"]
    ids = torch.cat((voice().tokens, spoken()))
    whole = flow.prefixes([Prefix(ids, ids[:0], voice().mel, flow.speaker(voice()))], streaming=True)[0]
    assert whole is not None
    for end in range(CHUNK_TOKENS, ids.numel(), CHUNK_TOKENS):
        made = flow.prefixes(
            [Prefix(ids[:end], ids[end : end + LOOKAHEAD_TOKENS], voice().mel, flow.speaker(voice()))], streaming=True
        )[0]
        assert made is not None
        assert np.abs(made.numpy() - whole.numpy()[:, : 2 * end]).max() < 5e-5


def test_a_batch_of_different_lengths_is_each_of_them(flows: dict[str, EngineFlow]) -> None:
    flow = flows["fp32"]
    ids = torch.cat((voice().tokens, spoken()))
    ends = (76, 90, 99, 100)
    streams = [
        Prefix(ids[:end], ids[:0], voice().mel[: 2 * 20 - 4 * at], flow.speaker(voice())) for at, end in enumerate(ends)
    ]
    together = flow.prefixes(streams, streaming=True)
    for stream, batched in zip(streams, together, strict=True):
        alone = flow.prefixes([stream], streaming=True)[0]
        assert alone is not None
        assert batched is not None
        assert alone.shape == (80, 2 * stream.ids.numel())
        assert np.abs(alone.numpy() - batched.numpy()).max() < 2e-5


def test_a_stopped_stream_leaves_the_others_whole(flows: dict[str, EngineFlow]) -> None:
    flow, ids = flows["fp32"], spoken()[:60]
    speaker, asked = flow.speaker(voice()), [0]

    def soon() -> bool:
        asked[0] += 1
        return asked[0] > 3

    plain = Prefix(ids, ids[:0], voice().mel, speaker)
    alone = flow.prefixes([plain], streaming=False)[0]
    stopped = Prefix(ids, ids[:0], voice().mel, speaker, soon)
    nothing, made = flow.prefixes([stopped, plain], streaming=False)
    assert nothing is None
    assert made is not None
    assert alone is not None
    assert np.abs(alone.numpy() - made.numpy()).max() < 2e-5
    asked[0], before = 0, flow.euler_steps
    with pytest.raises(Cancelled):
        flow.prefix(voice(), ids, streaming=False, final=True, stop=soon)
    assert flow.euler_steps - before == 3
    assert flow.slots.free == flow.slots.count
