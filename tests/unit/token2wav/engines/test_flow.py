"""The flow by engines against recorded outputs of the reference: the offline mel and that of every
streaming call; batches; cancellation.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from services.token2wav.engines.flow import EngineFlow, Prefix
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.inputs.request import Cancelled, Profile
from tests.stacks.up_process import TINY, TINY3
from tests.unit.token2wav.engines.engines import onnx_backend


class Recorded:
    """What the reference's flow made with the reduced model of a generation."""

    def __init__(self, bundle: Path) -> None:
        with np.load(bundle / "flow_mel.npz") as file:
            self._arrays: dict[str, Any] = {name: file[name] for name in file.files}
        self.spoken = torch.from_numpy(self["token"][0]).long()
        self.voice = VoicePrompt(
            torch.from_numpy(self["prompt_token"][0]).long(),
            *(torch.from_numpy(self[name][0]) for name in ("prompt_feat", "spk_embedding")),
        )

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def calls(self) -> Iterator[tuple[int, bool, bool, str]]:
        """Tokens, streaming, final, and the name of the mel. A last call in one piece is recorded
        as the offline mel only.
        """
        yield len(self.spoken), False, True, "mel_offline"
        yield len(self.spoken), True, True, "mel_streaming_finalize"
        for at in range(self["n_calls"]):
            tokens, streaming, final = (
                self[f"call{at}_{name}"].item() for name in ("n_tokens", "streaming", "finalize")
            )
            if f"mel_chunk{at}_full" in self._arrays or streaming:
                yield int(tokens), bool(streaming), bool(final), f"mel_chunk{at}_full"


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., EngineFlow]:
    @cache
    def flow_of(bundle: Path, precision: str = "fp32") -> EngineFlow:
        backend = onnx_backend(tmp_path_factory.mktemp("engines"), model=bundle, engine_precision=precision)
        flow: EngineFlow = backend.decoders[Profile.CONTINUOUS].flow
        return flow

    return flow_of


def apart(made: torch.Tensor, wanted: Any) -> float:
    """The largest difference."""
    return float(np.abs(made.numpy() - np.asarray(wanted)).max())


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 5e-5), ("fp16", 2e-2)])
@pytest.mark.parametrize("bundle", [TINY, TINY3], ids=["tiny", "tiny3"])
def test_every_call_of_the_recorded_stream(
    flows: Callable[..., EngineFlow], bundle: Path, precision: str, tolerance: float
) -> None:
    recorded = Recorded(bundle)
    calls = list(recorded.calls())
    assert len(calls) >= 4
    for tokens, streaming, final, wanted in calls:
        mel = flows(bundle, precision).prefix(
            recorded.voice, recorded.spoken[:tokens], streaming=streaming, final=final
        )
        assert apart(mel, recorded[wanted][0]) < tolerance


@pytest.mark.parametrize("bundle", [TINY, TINY3], ids=["tiny", "tiny3"])
def test_a_stopped_stream_leaves_the_others_whole(flows: Callable[..., EngineFlow], bundle: Path) -> None:
    recorded, flow = Recorded(bundle), flows(bundle)
    voice, ids = recorded.voice, recorded.spoken[:60]
    plain = Prefix(ids, ids[:0], voice.mel, flow.speaker(voice))
    (alone,) = flow.prefixes([plain], streaming=False)
    stopped = replace(plain, stop=(at >= 3 for at in count()).__next__)
    nothing, made = flow.prefixes([stopped, plain], streaming=False)
    assert nothing is None
    assert apart(alone, made) < 2e-5
    before = flow.euler_steps
    with pytest.raises(Cancelled):
        flow.prefix(voice, ids, streaming=False, final=True, stop=(at >= 3 for at in count()).__next__)
    assert (flow.euler_steps - before, flow.slots.free) == (3, flow.slots.count)
