"""The flow by engines against recorded outputs of the reference: the offline mel and that of every
streaming call; batches; cancellation.
"""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from services.token2wav.engines.flow import EngineFlow, Prefix
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.inputs.request import Cancelled, Profile
from tests.unit.token2wav.engines.engines import onnx_backend
from tests.unit.token2wav.speaking import TINY

with np.load(TINY / "flow_mel.npz") as file:
    RECORDED: dict[str, Any] = {name: file[name] for name in file.files}
SPOKEN = torch.from_numpy(RECORDED["token"][0]).long()
VOICE = VoicePrompt(
    torch.from_numpy(RECORDED["prompt_token"][0]).long(),
    *(torch.from_numpy(RECORDED[name][0]) for name in ("prompt_feat", "spk_embedding")),
)
IDS = torch.cat((VOICE.tokens, SPOKEN))


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EngineFlow]:
    made = {}
    for precision in ("fp32", "fp16"):
        backend = onnx_backend(tmp_path_factory.mktemp("engines"), engine_precision=precision)
        made[precision] = backend.decoders[Profile.CONTINUOUS].flow
    return made


def apart(made: torch.Tensor, wanted: Any) -> float:
    """The largest difference."""
    return float(np.abs(made.numpy() - np.asarray(wanted)).max())


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 5e-5), ("fp16", 2e-2)])
def test_every_call_of_the_recorded_stream(flows: dict[str, EngineFlow], precision: str, tolerance: float) -> None:
    calls = [(len(SPOKEN), False, True, "mel_offline"), (len(SPOKEN), True, True, "mel_streaming_finalize")]
    for at in range(3):
        given = (RECORDED[f"call{at}_{name}"].item() for name in ("n_tokens", "streaming", "finalize"))
        calls.append((*map(int, given), f"mel_chunk{at}_full"))
    assert len(calls) == 2 + RECORDED["n_calls"]
    for tokens, streaming, final, wanted in calls:
        mel = flows[precision].prefix(VOICE, SPOKEN[:tokens], streaming=bool(streaming), final=bool(final))
        assert apart(mel, RECORDED[wanted][0]) < tolerance


def test_a_stopped_stream_leaves_the_others_whole(flows: dict[str, EngineFlow]) -> None:
    flow, ids = flows["fp32"], SPOKEN[:60]
    plain = Prefix(ids, ids[:0], VOICE.mel, flow.speaker(VOICE))
    (alone,) = flow.prefixes([plain], streaming=False)
    stopped = replace(plain, stop=(at >= 3 for at in count()).__next__)
    nothing, made = flow.prefixes([stopped, plain], streaming=False)
    assert nothing is None
    assert apart(alone, made) < 2e-5
    before = flow.euler_steps
    with pytest.raises(Cancelled):
        flow.prefix(VOICE, ids, streaming=False, final=True, stop=(at >= 3 for at in count()).__next__)
    assert (flow.euler_steps - before, flow.slots.free) == (3, flow.slots.count)
