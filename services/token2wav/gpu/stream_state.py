"""The decoder's state of one stream, and the stream's work in one step."""

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import CosyserveError
from cosyserve.spec import CHUNK_TOKENS
from services.token2wav.decoders.interface import StepInput
from services.token2wav.gpu.paged_flow.page_pool import Pages
from services.token2wav.gpu.paged_flow.unit_table import DUMMY_PAGE
from services.token2wav.gpu.stream_units import StreamUnits
from services.token2wav.vocoder.state import VocoderState
from services.token2wav.vocoder.time_stretch import MelStretch

BLOCKS_AT_ONCE = 16
"""Maximum grid blocks of one stream in a step, so that a long prompt takes few steps and other
streams still make progress.
"""
BOUNDED_AT_ONCE = 4
"""The same behind the prompt of a stream with a bounded past, all of whose new pages exist at the
same time: more than the stream keeps, and than it was admitted with. So only while at least half of
the pages are free.
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
    prompt has frames, float32 [blocks, 50, 80] on the device. room: pages of what lies in front of
    the estimator for which a page of its own has room; 0: the estimator's pages hold it.
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
    """One for each computed block, the dummy page for blocks that no later one sees; permanently
    empty once no pages were left, see `recomputing`.
    """
    room: int = 0
    fronts: list[int] = field(default_factory=list)
    """Pages of what lies in front of the estimator: those of the prompt, then the others."""
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
        shared = [page for part in self.of_prompt for page in part] if self.key else []
        own = max(len(self.held) - len(shared), 0)
        return own * self.page_bytes + int(self.pool.part(shared) * self.page_bytes)

    def reach(self, end: int) -> int:
        """Several grid blocks, because the kernels compute them in parallel; a prompt that is one
        block wholly.
        """
        if not self.units.whole_prompt:
            return min((self.position // CHUNK_TOKENS + BLOCKS_AT_ONCE) * CHUNK_TOKENS, end)
        if self.position < len(self.prompt):
            return min(len(self.prompt), end)
        # By its position, since a stream that is recomputed has no pages.
        computed = self.units.count(self.position)
        at_once = BOUNDED_AT_ONCE if 2 * self.pool.free >= self.pool.count else 1
        return min(self.units.end(computed + at_once), end)

    def early(self, tokens: int) -> int:
        """The last border inside the prompt whose look-ahead is known, given `tokens` generated
        tokens.
        """
        return self.units.grid.last_border(tokens)

    @property
    def inside(self) -> int:
        """The last border up to which the state depends only on the voice."""
        return self.units.grid.last_border()

    @cached_property
    def units(self) -> StreamUnits:
        """How the stream is cut."""
        return StreamUnits(len(self.prompt), self.room > 0)

    @property
    def held(self) -> list[int]:
        """All pages that the stream owns, or shares."""
        return [page for page in self.pages if page != DUMMY_PAGE] + self.fronts

    @property
    def of_prompt(self) -> tuple[list[int], list[int]]:
        """Its pages that depend only on the voice: the estimator's, and those in front of it."""
        return self.pages[: self.units.count(self.inside)], self.fronts[: self.fronts_for(self.units.of_prompt)]

    def fronts_for(self, count: int) -> int:
        """Pages of what lies in front of the estimator that so many blocks need. Those of the
        prompt are their own, so that streams can share them.
        """
        if not self.room:
            return 0
        prompt = min(count, self.units.of_prompt)
        return ceil(prompt / self.room) + ceil((count - prompt) / self.room)

    def front_pages(self) -> list[int] | None:
        """The same for each block, numbered as in `StepDitLayout.fronts`; None: they are those of
        the estimator.
        """
        if not self.room:
            return None
        numbers = [[page * self.room + at for at in range(self.room)] for page in self.fronts]
        prompt = self.fronts_for(self.units.of_prompt)
        before = [number for page in numbers[:prompt] for number in page][: self.units.of_prompt]
        return before + [number for page in numbers[prompt:] for number in page]

    def adopt(self, pages: list[int], fronts: list[int]) -> None:
        """Continue from pages of the same voice's prompt, as another of their owners."""
        self.pool.share([*pages, *fronts])
        old, self.pages, self.fronts = self.held, pages, fronts
        self.pool.release(old)
        self.position = self.units.end(len(pages))

    def forget(self) -> None:
        """Give back the pages that no later block sees."""
        gone = [at for at in self.units.forgotten(len(self.pages)) if self.pages[at] != DUMMY_PAGE]
        pages = [self.pages[at] for at in gone]
        for at in gone:
            self.pages[at] = DUMMY_PAGE
        self.pool.release(pages)

    def cancel(self) -> None:
        """Skip the stream in all work that is not queued yet. May be called from any thread."""
        self.cancelled = True
        if self.vocoder is not None:
            self.vocoder.cancelled = True

    def give_up_pages(self) -> None:
        """Continue without stored state."""
        pages, self.pages, self.fronts, self.recomputing = self.held, [], [], True
        self.pool.release(pages)

    def __del__(self) -> None:
        self.pool.release(self.held)
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
