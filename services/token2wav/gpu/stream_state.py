"""What the decoder remembers of one stream: which pages are its own, and how far it has come."""

from dataclasses import dataclass, field

from torch import Tensor

from cosyserve.errors import CosyserveError
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.token2wav.gpu.paged_flow.page_pool import Pages
from services.token2wav.vocoder.state import VocoderState
from services.token2wav.vocoder.time_stretch import StretchState

BLOCKS_AT_ONCE = 16
"""Grid blocks of one stream in a step, so that a long prompt takes few steps and others still get
their turn.
"""


class Slots:
    """Places in the vocoder's memory; from 1 on."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count - 1, 0, -1))

    def take(self) -> int | None:
        """A free one, None when there is none."""
        return self._free.pop() if self._free else None

    def release(self, slot: int) -> None:
        """Nobody uses it any more. May be called from any thread."""
        self._free.append(slot)


@dataclass(eq=False)
class PagedState:
    """One stream. prompt: int64 [P]. speaker: float32 [80] on the device. conditions: of the blocks
    in which the prompt has frames, float32 [blocks, 50, 80] there. Its pages and its slot go back
    when it is dropped, on whatever thread."""

    pool: Pages
    page_bytes: int
    slots: Slots
    slot: int
    prompt: Tensor
    key: str
    speaker: Tensor
    conditions: Tensor
    stretch: StretchState
    seed: int
    sentence: int
    position: int = 0
    """Tokens decoded, those of the prompt included."""
    pages: list[int] = field(default_factory=list)
    """One for each block that is done; empty from when there was no room for them, see
    `recomputing`.
    """
    recomputing: bool = False
    """No pages: every step makes all blocks again."""
    received: int = 0
    """Mel frames in the vocoder's ring so far, behind the prompt and stretched."""
    rendered: int = 0
    ended: bool = False
    vocoder: VocoderState | None = None
    """Where the readable vocoder renders: its state instead of a slot in the ring."""
    prompt_cached: bool | None = None
    cancelled: bool = False
    fault: CosyserveError | None = None
    """Why this stream, and no other of its batch, can go no further."""

    @property
    def bytes(self) -> int:
        """Memory held, without what the prompt cache holds as well; its part of pages that streams
        of the voice share without that.
        """
        inside = self.inside // CHUNK_TOKENS if self.key else 0
        own = max(len(self.pages) - inside, 0)
        return own * self.page_bytes + int(self.pool.part(self.pages[:inside]) * self.page_bytes)

    def reach(self, end: int) -> int:
        """Several grid blocks at once, as the kernels take them side by side."""
        return min((self.position // CHUNK_TOKENS + BLOCKS_AT_ONCE) * CHUNK_TOKENS, end)

    def early(self, tokens: int) -> int:
        """The last border inside the prompt whose look-ahead is known, `tokens` generated tokens
        counted in.
        """
        return border(len(self.prompt), tokens)

    @property
    def inside(self) -> int:
        """The last border up to which the voice alone decides."""
        return border(len(self.prompt))

    def cancel(self) -> None:
        """The stream is left out of what is not yet queued. May be called from any thread."""
        self.cancelled = True
        if self.vocoder is not None:
            self.vocoder.cancelled = True

    def give_up_pages(self) -> None:
        """Go on without kept state."""
        pages, self.pages, self.recomputing = self.pages, [], True
        self.pool.release(pages)

    def __del__(self) -> None:
        self.pool.release(self.pages)
        self.slots.release(self.slot)


def border(prompt: int, tokens: int = 0) -> int:
    """Tokens up to the last border inside a prompt of `prompt` tokens whose look-ahead is known
    when `tokens` come after it.
    """
    return max(min(prompt, prompt + tokens - LOOKAHEAD_TOKENS), 0) // CHUNK_TOKENS * CHUNK_TOKENS
