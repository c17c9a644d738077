"""The decoder of profile `upstream` hands the vocoder the mels that the reference's streaming of
Step-Audio2 recorded, hop for hop; a stream that is cancelled or has a fault ends there.
"""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import CosyserveError, NonFinite
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.kept_hops import KeptHopsDecoder, KeptHopsState
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.past import REFERENCE_CUT
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Hops, Profile, Sentence, Stop, Voice
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.vocoder import Vocoder

BUNDLE = Path(__file__).parent / "tiny-stepaudio2"


class Listener:
    """In place of a vocoder: keeps what it is given."""

    def __init__(self) -> None:
        self.mels: list[Tensor] = []

    def step_upstream(self, state: UpstreamVocoderState, mel: Tensor, final: bool, *, stop: Stop) -> Tensor:
        self.mels.append(mel)
        return torch.zeros(480 * mel.shape[1])


class Stream:
    """A recorded case, hop by hop."""

    def __init__(self, case: str) -> None:
        flow = load_flow(ModelDirectory(BUNDLE), torch.device("cpu"))
        with np.load(BUNDLE / "inputs.npz") as arrays:
            prompt, self.tokens = (arrays[f"{case}_{name}"][0].astype(np.int64) for name in ("prompt_token", "token"))
            said = Sentence(Voice(prompt, arrays[f"{case}_prompt_mel"][0], arrays[f"{case}_spk"][0]))
            flow.noise = torch.from_numpy(arrays["rand_noise"][0].T.copy())
        self.listener, self.prompt, self._hop = Listener(), len(prompt), None
        self.decoder = KeptHopsDecoder(flow, cast(Vocoder, self.listener), REFERENCE_CUT)
        self.state: KeptHopsState = self.decoder.start(said)
        self._plan = schedule(Profile.UPSTREAM, self.prompt, Hops(), whole_prompt=True)

    def hop(self) -> Decoded | CosyserveError | None:
        """The next one, with no more tokens known than it needs."""
        self._hop = hop = self._plan.next(self._hop, len(self.tokens), finished=True)
        assert hop is not None
        known: NDArray[np.int64] = self.tokens if hop.final else self.tokens[: hop.end + 3]
        (made,) = self.decoder.step([StepInput(self.state, known, self.prompt + hop.end, hop.final)])
        return made


@pytest.mark.parametrize(("case", "hops"), [("A", 7), ("B", 6)])
def test_every_hop_is_that_of_the_reference(case: str, hops: int) -> None:
    stream = Stream(case)
    made = [stream.hop() for _ in range(hops)]
    with np.load(BUNDLE / "stream.npz") as arrays:
        recorded = [torch.from_numpy(arrays[f"{case}_step_mel{at}"][0]) for at in range(hops)]
    for mel, wanted in zip(stream.listener.mels, recorded, strict=True):
        torch.testing.assert_close(mel, wanted, atol=5e-5, rtol=0)
    frames = [each.frames for each in made if isinstance(each, Decoded)]
    assert (frames, sum(frames)) == ([mel.shape[1] for mel in recorded], 2 * len(stream.tokens))
    assert stream.state.position == stream.prompt + len(stream.tokens)


@pytest.mark.parametrize("before", [0, 1])
def test_a_cancelled_stream_and_one_with_a_fault_end_without_sound(before: int) -> None:
    """In front of the prompt, and behind the first hop."""
    for wanted in (None, NonFinite):
        stream = Stream("A")
        for _ in range(before):
            assert isinstance(stream.hop(), Decoded)
        if wanted is None:
            stream.state.cancel()
        else:
            stream.state.flow.speaker = torch.full((80,), torch.nan)
        made = stream.hop()
        assert made is None if wanted is None else isinstance(made, wanted)
        assert len(stream.listener.mels) == before
