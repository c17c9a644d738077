"""The vocoder's state of one sentence between steps."""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.spec import MEL_BINS
from services.token2wav.vocoder.source import Phase


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


@dataclass(kw_only=True)
class VocoderState:
    """State in the `continuous` profile. Set `cancelled` from any thread: no further window is
    started once it is seen, and the memory is freed.

    Frames and samples are counted from the start of the sentence.
    """

    seed: int
    sentence: int
    mel: Tensor
    """[80, n]: the frames from `first_frame` on, which later windows may need."""
    source: Tensor
    """[m]: excitation from sample 480 * first_frame on."""
    first_stop: int
    """Where the first window ends; later ones have full length."""
    window_frames: int
    """The full length of a window."""
    phase: Phase | None = None
    first_frame: int = 0
    pitched: int = 0
    """Frames whose f0 has gone into the source."""
    rendered: int = 0
    """Frames whose samples have been returned."""
    ended: bool = False
    cancelled: bool = False
    fault: InternalFault | None = None
    """Why this stream, and no other of its batch, cannot continue."""

    @property
    def received(self) -> int:
        """Mel frames received in total."""
        return self.first_frame + self.mel.shape[1]

    @property
    def bytes(self) -> int:
        """Bytes held."""
        phase = (self.phase.turns, self.phase.f0) if self.phase else ()
        return _bytes(self.mel, self.source, *phase)

    def release(self) -> None:
        """Free the memory. The sentence is over for this state."""
        self.mel, self.source, self.phase = self.mel.new_zeros(MEL_BINS, 0), self.source.new_zeros(0), None


@dataclass(kw_only=True)
class UpstreamVocoderState:
    """State in the `upstream` profile: what the reference calls its cache, None before the first
    call.
    """

    seed: int
    sentence: int
    mel: Tensor | None = None
    """[80, 8]: the last frames of the previous call."""
    source: Tensor | None = None
    """[3840]: their excitation."""
    speech: Tensor | None = None
    """[3840]: their samples, held back for the cross-fade."""
    frames: int = 0
    """Frames received in total."""
    ended: bool = False

    @property
    def bytes(self) -> int:
        """Bytes held."""
        return _bytes(self.mel, self.source, self.speech)
