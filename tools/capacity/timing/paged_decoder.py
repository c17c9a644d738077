"""token2wav that only takes time, over the pages of the engine that serves: its pool, its rule for
streams that find no page, its step sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cosyserve.errors import CosyserveError
from cosyserve.spec import CHUNK_TOKENS
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.gpu.paged_flow.page_pool import Pages
from services.token2wav.gpu.stream_state import BLOCKS_AT_ONCE
from services.token2wav.inputs.chunking import grid_blocks, last_border
from services.token2wav.inputs.request import Sentence, Voice
from tools.capacity.timing.device import Device
from tools.capacity.timing.engines import hum
from tools.capacity.timing.pod_clock import PodClock


@dataclass(eq=False)
class PagedTimes:
    """A stream. position, samples: decoded so far, in tokens with the prompt and in samples."""

    pool: Pages
    page_bytes: int
    prompt: int
    position: int
    samples: int = 0
    pages: list[int] = field(default_factory=list)
    """Its own: those of its prompt belong to the prompt cache."""
    recomputing: bool = False
    prompt_cached: bool = True

    @property
    def bytes(self) -> int:
        """Of its own pages."""
        return len(self.pages) * self.page_bytes

    def reach(self, end: int) -> int:
        """As `services.token2wav.gpu.stream_state.PagedState`."""
        return min((self.position // CHUNK_TOKENS + BLOCKS_AT_ONCE) * CHUNK_TOKENS, end)

    def early(self, tokens: int) -> int:
        """Nothing is left to do inside the prompt."""
        return 0

    def cancel(self) -> None:
        """It ends before its next step anyhow."""

    def grow(self, until: int) -> None:
        """Pages up to `until`; none at all from now on where there are too few."""
        wanted = -(-until // CHUNK_TOKENS) - last_border(self.prompt) // CHUNK_TOKENS - len(self.pages)
        taken = None if self.recomputing else self.pool.take(max(wanted, 0))
        if taken is None:
            self.recomputing = True
            self.release()
        else:
            self.pages += taken

    def release(self) -> None:
        """Give every page back."""
        pages, self.pages = self.pages, []
        self.pool.release(pages)

    def __del__(self) -> None:
        self.release()


class TimedPagedDecoder:
    """pages: of the pool, prompts not included. streams: how many are open. busy_seconds, steps,
    blocks: so far; recomputed: blocks for want of pages.
    """

    goes_on_without_room = True
    takes_fewer_steps = False

    def __init__(
        self, clock: PodClock, device: Device, pages: int, widest_step: int, streams: Callable[[], int]
    ) -> None:
        self.widest_step = widest_step
        self.pool = Pages(pages + 1)
        self.busy_seconds, self.steps, self.blocks, self.recomputed = 0.0, 0, 0, 0
        self._clock, self._device, self._streams = clock, device, streams
        self._begins: Callable[[], None] = lambda: None
        """Prevents that a planned step begins."""
        self.ended: Callable[[], None] = lambda: None
        """Called when the results of a step are handed out."""

    @property
    def token_bytes(self) -> int:
        """A token's share of a page."""
        return -(-self._device.profile.block_bytes // CHUNK_TOKENS)

    def start_bytes(self, voice: Voice) -> int:
        """The prompt is kept already."""
        return 0

    def start(self, sentence: Sentence) -> PagedTimes:
        """Behind the last border inside the prompt."""
        prompt = len(sentence.voice.tokens)
        return PagedTimes(self.pool, self._device.profile.block_bytes, prompt, last_border(prompt))

    def begin(self, strides: Sequence[StepInput[PagedTimes]]) -> float:
        """A step begins; returns the seconds that it takes."""
        for stride in strides:
            stride.state.grow(stride.until)
        # The scheduler runs between two steps, on the thread of the engine.
        planning = self._device.profile.planning.seconds(self._streams(), len(strides))
        seconds = self._seconds(strides)
        self._begins = self._clock.after(planning, lambda: self._device.decodes(now=True))
        self.busy_seconds, self.steps = self.busy_seconds + seconds, self.steps + 1
        return planning + seconds

    def step(self, strides: Sequence[StepInput[PagedTimes]]) -> list[Decoded | CosyserveError | None]:
        """What the step begun with these has made: something audible of the right length."""
        self._device.decodes(now=False)
        self.ended()
        return [hum(stride) for stride in strides]

    def abandon(self) -> None:
        """The step that runs has no end."""
        self._begins()
        self._device.decodes(now=False)

    def _seconds(self, strides: Sequence[StepInput[PagedTimes]]) -> float:
        profile = self._device.profile
        kept = [stride for stride in strides if not stride.state.recomputing]
        each = [grid_blocks(stride.state.position, stride.until) for stride in kept]
        blocks, seconds = sum(each), 0.0
        if blocks:
            behind = sum(-(-stride.until // CHUNK_TOKENS) for stride in kept) / len(kept)
            seconds += profile.flow_pass(blocks, behind)
        for stride in strides:
            if stride.state.recomputing:
                again = -(-stride.until // CHUNK_TOKENS)
                seconds, self.recomputed = seconds + profile.recomputed(again), self.recomputed + again
        # One window of each stream at a time: a later one goes on from the phase of the one before.
        windows = [grid_blocks(stride.state.position, stride.until) for stride in strides]
        seconds += sum(
            profile.vocoder_pass(sum(count > at for count in windows)) for at in range(max(windows, default=0))
        )
        self.blocks += sum(windows)
        together = max(sum(windows), 1)
        longer = profile.contention.of_flow(together) if self._device.writing else 1.0
        return self._device.varied(seconds * longer + profile.host_step(together))
