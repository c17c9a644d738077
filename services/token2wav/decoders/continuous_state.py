"""The state of one stream between steps in the served profile."""

import weakref
from dataclasses import dataclass

from torch import Tensor

from services.token2wav.decoders.continuous_state import EarlyBlock
from services.token2wav.flow.stream_cache import FlowState
from services.token2wav.inputs.chunking import last_border, next_border
from services.token2wav.vocoder.state import VocoderState
from services.token2wav.vocoder.time_stretch import StretchState


@dataclass(eq=False)
class ContinuousState:
    """The state of one stream. prompt: int64 [P]. prompt_cached: see `StreamState`."""

    prompt: Tensor
    key: str
    """Cache key of the state at the end of the prompt; empty: it is not cached."""
    flow: FlowState
    stretch: StretchState
    vocoder: VocoderState
    cached: "weakref.ref[FlowState] | None" = None
    """The state in the prompt cache that this stream continues from, while the cache has it. Its
    bytes are counted in the cache; once the cache has dropped it, they are counted in each stream
    that still uses them.
    """
    shared: FlowState | None = None
    """The state inside the prompt that this stream shares with other streams of the voice; this
    reference keeps it alive.
    """
    prompt_cached: bool | None = None
    recomputing: bool = False
    ahead: EarlyBlock | None = None
    """The block after `position`, if it was started early."""

    @property
    def position(self) -> int:
        """Tokens decoded, those of the prompt included."""
        return self.flow.position

    @property
    def bytes(self) -> int:
        """Memory held, without what the prompt cache holds as well."""
        cached = self.cached() if self.cached is not None else None
        cached_bytes = cached.bytes if cached is not None else 0
        flow = self.flow if self.ahead is None else self.ahead.flow
        return max(flow.bytes - cached_bytes, 0) + self.stretch.bytes + self.vocoder.bytes

    def reach(self, end: int) -> int:
        """One grid block."""
        return next_border(self.position, end)

    def early(self, tokens: int) -> int:
        """The last border inside the prompt whose look-ahead is known, given `tokens` generated
        tokens.
        """
        return last_border(len(self.prompt), tokens)

    @property
    def inside(self) -> int:
        """The last border inside the prompt whose look-ahead is prompt too: up to there the state
        depends only on the voice.
        """
        return last_border(len(self.prompt))

    def cancel(self) -> None:
        """Flow and vocoder skip this stream from the next Euler step or window on. May be called
        from any thread.
        """
        self.flow.cancelled = True
        self.vocoder.cancelled = True
        if (ahead := self.ahead) is not None:
            ahead.flow.cancelled = True
