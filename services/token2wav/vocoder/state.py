"""What the vocoder remembers of one sentence between steps."""

from dataclasses import dataclass

from torch import Tensor

from cosyserve.errors import InternalFault
from cosyserve.spec import MEL_BINS
from services.token2wav.vocoder.source import Phase


def _bytes(*tensors: Tensor | None) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


@dataclass(kw_only=True)
class VocoderState:
    """`continuous` profile. Set `cancelled` from any thread: no window is started after it is seen,
    and the memory is freed.

    Frames and samples are counted from the start of the sentence.
    """

    seed: int
    sentence: int
    mel: Tensor
    """[80, n]: the frames from `kept` on that a later window may need."""
    source: Tensor
    """[m]: excitation from sample 480 * kept on."""
    first_stop: int
    """Where the first window ends; later ones have full length."""
    window_frames: int
    """What that full length is."""
    phase: Phase | None = None
    kept: int = 0
    pitched: int = 0
    """Frames whose f0 has gone into the source."""
    rendered: int = 0
    """Frames whose samples have been handed out."""
    ended: bool = False
    cancelled: bool = False
    fault: InternalFault | None = None
    """Why this stream, and no other of its batch, can go no further."""

    @property
    def received(self) -> int:
        """Mel frames that have come in all."""
        return self.kept + self.mel.shape[1]

    @property
    def bytes(self) -> int:
        """Memory held."""
        phase = (self.phase.turns, self.phase.f0) if self.phase else ()
        return _bytes(self.mel, self.source, *phase)

    def release(self) -> None:
        """Give the memory back. The sentence is over for this state."""
        self.mel, self.source, self.phase = self.mel.new_zeros(MEL_BINS, 0), self.source.new_zeros(0), None


@dataclass(kw_only=True)
class UpstreamVocoderState:
    """`upstream` profile: what the reference calls its cache, None before the first call."""

    seed: int
    sentence: int
    mel: Tensor | None = None
    """[80, 8]: the last frames of the call before."""
    source: Tensor | None = None
    """[3840]: their excitation."""
    speech: Tensor | None = None
    """[3840]: their samples, held back for the cross-fade."""
    frames: int = 0
    """Frames received in all."""
    ended: bool = False

    @property
    def bytes(self) -> int:
        """Memory held."""
        return _bytes(self.mel, self.source, self.speech)
