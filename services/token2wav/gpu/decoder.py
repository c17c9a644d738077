"""The continuous profile on a GPU: the blocks of all streams of a step form one batch for the flow,
their windows one batch for the vocoder.

Same interface as `continuous.ContinuousDecoder`, and the same samples within rounding; that class
remains the readable definition and serves the CPU.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import CosyserveError, NonFinite, Overloaded
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.prompt_cache import PromptCacheStats
from services.token2wav.flow.flow import as_prompt
from services.token2wav.flow.solver import LARGEST_MEL
from services.token2wav.gpu.device.host_staging import DeviceToHost
from services.token2wav.gpu.flow_step import FlowStep
from services.token2wav.gpu.paged_flow.page_pool import PagedPrompts, Pages
from services.token2wav.gpu.stream_state import PagedState, Slots, StepWork
from services.token2wav.gpu.stream_units import NEWEST, StreamUnits
from services.token2wav.gpu.vocoder_step import ReadableVocoderStep, VocoderStep
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder

if TYPE_CHECKING:  # both need triton; tests without it use the page ownership of this file
    from services.token2wav.gpu.paged_flow.flow import PagedFlow
    from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder

_NO_SAMPLES = np.zeros(0, np.float32)


class PagedDecoder:
    """widest_step: maximum number of streams in a step. prompt_pages: maximum number of pages for
    cached prompts. fronts: see `PagedFlow.fronts`; where there are any, a prompt is one block and
    the past is bounded.
    """

    goes_on_without_room = True
    takes_fewer_steps = False  # pages and recorded graphs have ten

    def __init__(
        self,
        flow: "PagedFlow[Any]",
        vocoder: "WindowedVocoder | Vocoder",
        *,
        pages: int,
        slots: int,
        widest_step: int,
        prompt_pages: int,
        fronts: int = 0,
    ) -> None:
        self._fronts = fronts
        self.widest_step, self._flow = widest_step, flow
        self._pages, self._slots = Pages(pages), Slots(slots)
        self._prompts = PagedPrompts(self._pages, prompt_pages, flow.page_bytes)
        self._cuda = flow.device.type == "cuda"
        self._to_host = DeviceToHost(pinned=self._cuda)
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if self._cuda else []  # type: ignore[no-untyped-call]
        self._flow_step = FlowStep(flow, self._pages, self._prompts, self._to_host)
        self._vocoder_step = (
            ReadableVocoderStep(vocoder) if isinstance(vocoder, Vocoder) else VocoderStep(vocoder, self._to_host)
        )

    @property
    def recomputed(self) -> int:
        """Blocks recomputed because no pages were left for them."""
        return self._flow_step.recomputed

    @property
    def pages(self) -> tuple[int, int]:
        """As `HasPages`."""
        return self._pages.held, self._pages.count

    @property
    def token_bytes(self) -> int:
        """A token's share of a page."""
        return -(-self._flow.page_bytes // CHUNK_TOKENS)

    @property
    def whole_prompt(self) -> bool:
        """See `DecodesPromptWhole`."""
        return self._fronts > 0

    def growth_bytes(self, tokens: int) -> int:
        """See `BoundsItsState`."""
        if not self._fronts:
            return tokens * self.token_bytes
        blocks = -(-tokens // CHUNK_TOKENS)
        # Those that a block sees, its own, and what lies in front of all of them.
        return self._flow.page_bytes * (min(blocks, NEWEST + 1) + -(-blocks // self._fronts))

    @property
    def prompts(self) -> PromptCacheStats:
        """Statistics of the prompt cache. May be called from any thread."""
        return self._prompts.stats

    def start_bytes(self, voice: Voice) -> int:
        """Bytes for the prompt, 0 if its state is cached and shared. May be called from any
        thread.
        """
        if voice.state_key in self._prompts:
            return 0
        units = StreamUnits(len(voice.tokens), self.whole_prompt).of_prompt
        return (
            self._flow.page_bytes * (units + -(-units // self._fronts))
            if self._fronts
            else (len(voice.tokens) * self.token_bytes)
        )

    @torch.inference_mode()
    def start(self, sentence: Sentence) -> PagedState:
        """A stream at the first prompt token, or at the last border inside the prompt if the state
        there is cached.
        """
        voice = as_prompt(sentence.voice)
        units = StreamUnits(len(voice.tokens), self.whole_prompt)
        key = sentence.voice.state_key if units.grid.last_border() > 0 else ""
        cached = self._prompts.get(key) if key else None
        # The conditions of all blocks, including cached ones, because a stream that loses its pages
        # is recomputed from its first block.
        conditions = self._conditions(voice.mel, units.skipped) if cached is None else cached.conditions
        speaker = self._flow.speaker(voice.embedding) if cached is None else cached.speaker
        stretch = MelStretch(sentence.speed, self._flow.device)
        # Taken last, so that a failure before this line leaks no slot.
        slot = self._slots.take()
        if slot is None:
            raise Overloaded("all places in the vocoder's memory are taken")
        state = PagedState(
            pool=self._pages,
            page_bytes=self._flow.page_bytes,
            slots=self._slots,
            slot=slot,
            prompt=voice.tokens,
            key=key,
            speaker=speaker,
            conditions=conditions,
            stretch=stretch,
            seed=sentence.seed,
            sentence=sentence.sentence_index,
            room=self._fronts,
            prompt_cached=cached is not None if key else None,
        )
        if cached is not None:
            state.adopt(list(cached.pages), list(cached.fronts))
        self._vocoder_step.begin(state)
        return state

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[PagedState]]) -> list[Decoded | CosyserveError | None]:
        """Blocks and windows of all streams; see `Decoder.step`."""
        began = time.time_ns()
        self._to_host.begin()
        self._mark(0)
        works = [StepWork(step_input, step_input.state.position) for step_input in step_inputs]
        self._flow_step.make(works)
        self._mark(1)
        middle = time.time_ns()
        self._vocoder_step.make(works)
        self._mark(2)
        if self._cuda:
            torch.cuda.current_stream(self._flow.device).synchronize()
            middle = began + int(1e6 * self._marks[0].elapsed_time(self._marks[1]))
        end = time.time_ns()
        results = [self._result(work, (began, middle), (middle, end)) for work in works]
        for work in works:
            self._flow_step.cache_prompt(work)
        return results

    def _mark(self, at: int) -> None:
        if self._marks:
            self._marks[at].record()

    def _conditions(self, mel: Tensor, skipped: int) -> Tensor:
        """[frames, 80] -> [blocks, 50, 80] on the device, zero-padded, by so many tokens at the
        beginning.
        """
        before = MEL_FRAMES_PER_TOKEN * skipped
        blocks = -(-(before + len(mel)) // CHUNK_FRAMES)
        padded = F.pad(mel, (0, 0, before, CHUNK_FRAMES * blocks - before - len(mel)))
        padded = padded.view(blocks, CHUNK_FRAMES, mel.shape[1])
        return padded.to(self._flow.device, torch.float32)

    def _result(
        self, work: StepWork, flow: tuple[int, int], vocoder: tuple[int, int]
    ) -> Decoded | CosyserveError | None:
        state = work.state
        if state.cancelled or work.idle:
            return None
        # The comparison is also False for NaN.
        if not all((largest <= LARGEST_MEL).all() for largest in work.largest):
            state.fault = NonFinite(
                f"the flow produced values that are not finite, or beyond any mel behind token {work.start}"
            )
        # Copied, because the next step overwrites the buffer. Samples are within the audio limit,
        # so their sum is finite exactly if all of them are.
        samples = np.concatenate(work.samples) if work.samples else _NO_SAMPLES
        if state.fault is None and not np.isfinite(samples.sum()):
            state.fault = NonFinite(f"the vocoder produced samples that are not finite before frame {state.rendered}")
        if state.fault is not None:
            return state.fault
        return Decoded(samples, work.step_input.until - work.start, work.frames, flow, vocoder if work.frames else None)
