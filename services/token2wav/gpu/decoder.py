"""The served profile on a GPU: the blocks of all streams of a step as one batch through the flow,
their windows as one through the vocoder.

Same seam, same samples within rounding as `continuous.ContinuousDecoder`, which stays the readable
definition and serves the CPU.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import CosyserveError, NonFinite, Overloaded
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS
from services.token2wav.decoders.interface import Decoded, Stride
from services.token2wav.decoders.prompt_cache import PromptCacheStats
from services.token2wav.flow.checks import LARGEST_MEL, check_length, check_voice
from services.token2wav.gpu.device.host_staging import DeviceToHost
from services.token2wav.gpu.flow_step import FlowStep
from services.token2wav.gpu.paged_flow.page_pool import PagedPrompts, Pages
from services.token2wav.gpu.step_work import StepWork
from services.token2wav.gpu.stream_state import PagedState, Slots, border
from services.token2wav.gpu.vocoder_step import ReadableVocoderStep, VocoderStep
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.inputs.voice_prompt import as_prompt
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder

if TYPE_CHECKING:  # both need triton, and who owns what can be seen without it
    from services.token2wav.gpu.paged_flow.flow import PagedFlow
    from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder

_NO_SAMPLES = np.zeros(0, np.float32)


class PagedDecoder:
    """widest_step: streams in a step. prompt_pages: pages that prompts may keep when nobody speaks
    them.
    """

    goes_on_without_room = True

    def __init__(
        self,
        flow: "PagedFlow",
        vocoder: "WindowedVocoder | Vocoder",
        *,
        pages: int,
        slots: int,
        widest_step: int,
        prompt_pages: int,
    ) -> None:
        self.widest_step = widest_step
        self._flow = flow
        self._pages, self._slots = Pages(pages), Slots(slots)
        self._prompts = PagedPrompts(self._pages, prompt_pages, flow.page_bytes)
        self._cuda = flow.device.type == "cuda"
        self._to_host = DeviceToHost(pinned=self._cuda)
        self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if self._cuda else []  # type: ignore[no-untyped-call]
        self._blocks = FlowStep(flow, self._pages, self._prompts, self._to_host)
        self._sounding = (
            ReadableVocoderStep(vocoder) if isinstance(vocoder, Vocoder) else VocoderStep(vocoder, self._to_host)
        )

    @property
    def recomputed(self) -> int:
        """FlowStep made again because there was no room to keep them."""
        return self._blocks.recomputed

    @property
    def token_bytes(self) -> int:
        """A token's share of a page."""
        return -(-self._flow.page_bytes // CHUNK_TOKENS)

    @property
    def prompts(self) -> PromptCacheStats:
        """Of the prompt cache. May be called from any thread."""
        return self._prompts.stats

    def start_bytes(self, voice: Voice) -> int:
        """Bytes for the prompt, 0 when its state is kept and shared. May be called from any
        thread.
        """
        return 0 if voice.state_key in self._prompts else len(voice.tokens) * self.token_bytes

    @torch.inference_mode()
    def start(self, sentence: Sentence) -> PagedState:
        """A stream at the first prompt token, or at the last border inside the prompt when the
        state there is kept.
        """
        voice = as_prompt(sentence.voice)
        check_voice(voice, self._flow.config)
        check_length(len(voice.tokens))
        key = sentence.voice.state_key if border(len(voice.tokens)) > 0 else ""
        kept = self._prompts.get(key) if key else None
        begun = 0 if kept is None else len(kept.pages)
        # The conditions of all blocks, kept ones too: a stream that loses its pages is made again
        # from its first.
        conditions = self._conditions(voice.mel) if kept is None else kept.conditions
        speaker = self._flow.speaker(voice.embedding) if kept is None else kept.speaker
        stretch = MelStretch.start(sentence.speed, self._flow.device)
        # Taken last: what fails before here leaves nothing taken.
        slot = self._slots.take()
        if slot is None:
            raise Overloaded("all places in the vocoder's memory are taken", retry_after=1.0)
        if kept is not None:
            self._pages.share(kept.pages)
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
            position=CHUNK_TOKENS * begun,
            pages=[] if kept is None else list(kept.pages),
            prompt_cached=kept is not None if key else None,
        )
        self._sounding.begin(state)
        return state

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[Stride[PagedState]]) -> list[Decoded | CosyserveError | None]:
        """FlowStep and windows of all streams; see `Decoder.step`."""
        began = time.time_ns()
        self._to_host.begin()
        self._mark(0)
        turns = [StepWork(step_input, step_input.state.position) for step_input in step_inputs]
        self._blocks.make(turns)
        self._mark(1)
        middle = time.time_ns()
        self._sounding.make(turns)
        self._mark(2)
        if self._cuda:
            torch.cuda.current_stream(self._flow.device).synchronize()
            middle = began + int(1e6 * self._marks[0].elapsed_time(self._marks[1]))
        end = time.time_ns()
        results = [self._result(turn, (began, middle), (middle, end)) for turn in turns]
        for turn in turns:
            self._blocks.remember(turn)
        return results

    def _mark(self, at: int) -> None:
        if self._marks:
            self._marks[at].record()

    def _conditions(self, mel: Tensor) -> Tensor:
        """[frames, 80] -> [blocks, 50, 80] on the device, zeros behind the end."""
        blocks = -(-len(mel) // CHUNK_FRAMES)
        padded = F.pad(mel, (0, 0, 0, CHUNK_FRAMES * blocks - len(mel))).view(blocks, CHUNK_FRAMES, mel.shape[1])
        return padded.to(self._flow.device, torch.float32)

    def _result(
        self, turn: StepWork, flow: tuple[int, int], vocoder: tuple[int, int]
    ) -> Decoded | CosyserveError | None:
        state = turn.state
        if state.cancelled or turn.idle:
            return None
        # neither are numbers that are none
        if not all((largest <= LARGEST_MEL).all() for largest in turn.largest):
            state.fault = NonFinite(
                f"the flow produced values that are not finite, or beyond any mel behind token {turn.start}"
            )
        # Copied, as the next step writes there; within the audio limit, so that a sum is finite
        # when all are.
        samples = np.concatenate(turn.samples) if turn.samples else _NO_SAMPLES
        if state.fault is None and not np.isfinite(samples.sum()):
            state.fault = NonFinite(f"the vocoder produced samples that are not finite before frame {state.rendered}")
        if state.fault is not None:
            return state.fault
        return Decoded(samples, turn.step_input.until - turn.start, turn.frames, flow, vocoder if turn.frames else None)
