"""The decoder's state of one stream, and the stream's work in one step."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import CosyserveError
from cosyserve.spec import CHUNK_TOKENS
from services.token2wav.decoders.interface import StepInput
from services.token2wav.gpu.paged_flow.page_pool import Pages
from services.token2wav.inputs.chunking import last_border
from services.token2wav.vocoder.state import VocoderState
from services.token2wav.vocoder.time_stretch import MelStretch

BLOCKS_AT_ONCE = 16
"""Maximum grid blocks of one stream in a step, so that a long prompt takes few steps and other
streams still make progress.
"""


class Slots:
    """Slots in the vocoder's memory; numbered from 1."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, 0, -1))

    def take(self) -> int | None:
        """A free slot, None if there is none."""
        return self._free.pop() if self._free else None

    def release(self, slot: int) -> None:
        """Free the slot. May be called from any thread."""
        self._free.append(slot)


@dataclass(eq=False)
class PagedState:
    """One stream. Its pages and its slot are released when it is dropped, on any thread.

    prompt: int64 [P]. speaker: float32 [80] on the device. conditions: of the blocks in which the
    prompt has frames, float32 [blocks, 50, 80] on the device.
    """

    pool: Pages
    page_bytes: int
    slots: Slots
    slot: int
    prompt: Tensor
    key: str
    speaker: Tensor
    conditions: Tensor
    stretch: MelStretch
    seed: int
    sentence: int
    position: int = 0
    """Tokens decoded, those of the prompt included."""
    pages: list[int] = field(default_factory=list)
    """One for each computed block; permanently empty once no pages were left, see `recomputing`."""
    recomputing: bool = False
    """The stream has no pages: every step recomputes all its blocks."""
    received: int = 0
    """Mel frames in the vocoder's ring so far, after the prompt and after stretching."""
    rendered: int = 0
    ended: bool = False
    vocoder: VocoderState | None = None
    """The readable vocoder's state, if that one renders; it replaces the slot in the ring."""
    prompt_cached: bool | None = None
    cancelled: bool = False
    fault: CosyserveError | None = None
    """Why this stream, and no other of its batch, cannot continue."""

    @property
    def bytes(self) -> int:
        """Bytes held, without pages that the prompt cache holds as well; other shared pages are
        counted in equal parts.
        """
        inside = self.inside // CHUNK_TOKENS if self.key else 0
        own = max(len(self.pages) - inside, 0)
        return own * self.page_bytes + int(self.pool.part(self.pages[:inside]) * self.page_bytes)

    def reach(self, end: int) -> int:
        """Several grid blocks, because the kernels compute them in parallel."""
        return min((self.position // CHUNK_TOKENS + BLOCKS_AT_ONCE) * CHUNK_TOKENS, end)

    def early(self, tokens: int) -> int:
        """The last border inside the prompt whose look-ahead is known, given `tokens` generated
        tokens.
        """
        return last_border(len(self.prompt), tokens)

    @property
    def inside(self) -> int:
        """The last border up to which the state depends only on the voice."""
        return last_border(len(self.prompt))

    def cancel(self) -> None:
        """Skip the stream in all work that is not queued yet. May be called from any thread."""
        self.cancelled = True
        if self.vocoder is not None:
            self.vocoder.cancelled = True

    def give_up_pages(self) -> None:
        """Continue without stored state."""
        pages, self.pages, self.recomputing = self.pages, [], True
        self.pool.release(pages)

    def __del__(self) -> None:
        self.pool.release(self.pages)
        self.slots.release(self.slot)


@dataclass(eq=False)
class StepWork:
    """The work of one step for one stream, passed from the flow to the vocoder."""

    step_input: StepInput[PagedState]
    start: int
    mels: list[Tensor] = field(default_factory=list)
    """Frames after the prompt, float32 [n, 80] each."""
    largest: list[NDArray[np.float32]] = field(default_factory=list)
    """Largest magnitude of each frame, NaN if a value is NaN; valid on the host only after
    synchronization.
    """
    frames: int = 0
    samples: list[NDArray[np.float32]] = field(default_factory=list)
    """Also valid only after synchronization."""
    idle: bool = False
    """Nothing was computed; the stream is due again in the next step."""

    @property
    def state(self) -> PagedState:
        return self.step_input.state
