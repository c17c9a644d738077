"""What the served profile remembers of one stream between steps."""

import weakref
from dataclasses import dataclass

from torch import Tensor

from services.token2wav.decoders.blocks_ahead import EarlyBlock
from services.token2wav.flow.state import FlowState
from services.token2wav.inputs.chunking import last_border, next_border
from services.token2wav.vocoder.state import VocoderState
from services.token2wav.vocoder.time_stretch import StretchState


@dataclass(eq=False)
class ContinuousState:
    """One stream. prompt: int64 [P]. key: where its state behind the prompt is kept, empty:
    nowhere.

    kept: the state in the prompt cache that this one goes on from, for as long as the cache has it:
    its bytes are counted there. When the cache has dropped it, they are counted with each stream
    that still uses them. begun: the state inside the prompt that it shares with streams of the same
    voice; holding it is what keeps it. prompt_cached: see `StreamState`.
    """

    prompt: Tensor
    key: str
    flow: FlowState
    stretch: StretchState
    vocoder: VocoderState
    kept: "weakref.ref[FlowState] | None" = None
    begun: FlowState | None = None
    prompt_cached: bool | None = None
    recomputing: bool = False
    ahead: EarlyBlock | None = None
    """The block behind `position`, where it was begun early."""

    @property
    def position(self) -> int:
        """Tokens decoded, those of the prompt included."""
        return self.flow.position

    @property
    def bytes(self) -> int:
        """Memory held, without what the prompt cache holds as well."""
        kept = self.kept() if self.kept is not None else None
        shared = kept.bytes if kept is not None else 0
        flow = self.flow if self.ahead is None else self.ahead.flow
        return max(flow.bytes - shared, 0) + self.stretch.bytes + self.vocoder.bytes

    def reach(self, end: int) -> int:
        """One grid block."""
        return next_border(self.position, end)

    def early(self, tokens: int) -> int:
        """The last border inside the prompt whose look-ahead is known, `tokens` generated tokens
        counted in.
        """
        return last_border(len(self.prompt), tokens)

    @property
    def inside(self) -> int:
        """The last border inside the prompt whose look-ahead is prompt too: up to there the voice
        alone decides.
        """
        return last_border(len(self.prompt))

    def cancel(self) -> None:
        """Flow and vocoder leave this stream out from the next Euler step or window on. May be
        called from any thread.
        """
        self.flow.cancelled = True
        self.vocoder.cancelled = True
        if (ahead := self.ahead) is not None:
            ahead.flow.cancelled = True
