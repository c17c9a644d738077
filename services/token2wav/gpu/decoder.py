"""The served profile on a GPU: the blocks of all streams of a step as one batch through the flow, their windows as one through the vocoder.

Same seam, same samples within rounding as `continuous.ContinuousDecoder`, which stays the readable definition and serves the CPU.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import CosyserveError, NonFinite, Overloaded
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN, SAMPLES_PER_MEL_FRAME
from services.token2wav.continuous import as_prompt
from services.token2wav.decoder import Decoded, Stride
from services.token2wav.flow.checks import check_length, check_voice
from services.token2wav.gpu.flow import PagedFlow
from services.token2wav.gpu.pages import PagedPrompts, Pages, PromptPages
from services.token2wav.gpu.state import PagedState, Slots, border
from services.token2wav.gpu.units import Unit
from services.token2wav.gpu.vocoder import WINDOW_FRAMES, Render, WindowedVocoder
from services.token2wav.prompt_cache import PromptCacheStats
from services.token2wav.request import Sentence, Voice
from services.token2wav.vocoder.stretch import MelStretch

_NO_SAMPLES = np.zeros(0, np.float32)


@dataclass(eq=False)
class _Turn:
    """What a step does for one stream."""

    stride: Stride[PagedState]
    start: int
    mels: list[Tensor] = field(default_factory=list)
    """Frames behind the prompt, float32 [n, 80] each."""
    finite: list[NDArray[np.bool_]] = field(default_factory=list)
    """Whether each block's mel is; on its way from the device until the step has waited for it."""
    frames: int = 0
    samples: list[NDArray[np.float32]] = field(default_factory=list)
    """On their way too."""
    idle: bool = False
    """Nothing was done after all: due again in the next step."""

    @property
    def state(self) -> PagedState:
        return self.stride.state


class PagedDecoder:
    """widest_step: streams in a step. prompt_pages: pages that prompts may keep when nobody speaks them."""

    goes_on_without_room = True

    def __init__(self, flow: PagedFlow, vocoder: WindowedVocoder, *, pages: int, slots: int, widest_step: int, prompt_pages: int) -> None:
        self.widest_step = widest_step
        self._flow, self._vocoder = flow, vocoder
        self._pages, self._slots = Pages(pages), Slots(slots)
        self._prompts = PagedPrompts(self._pages, prompt_pages, flow.page_bytes)
        self._cuda = flow.device.type == "cuda"
        self.recomputed = 0
        """Blocks made again because there was no room to keep them."""

    @property
    def token_bytes(self) -> int:
        """A token's share of a page."""
        return -(-self._flow.page_bytes // CHUNK_TOKENS)

    @property
    def prompts(self) -> PromptCacheStats:
        """Of the prompt cache. May be called from any thread."""
        return self._prompts.stats

    def start_bytes(self, voice: Voice) -> int:
        """Bytes for the prompt, 0 when its state is kept and shared. May be called from any thread."""
        return 0 if voice.state_key in self._prompts else len(voice.tokens) * self.token_bytes

    @torch.inference_mode()
    def start(self, sentence: Sentence) -> PagedState:
        """A stream at the first prompt token, or at the last border inside the prompt when the state there is kept."""
        voice = as_prompt(sentence.voice)
        check_voice(voice, self._flow.config)
        check_length(len(voice.tokens))
        slot = self._slots.take()
        if slot is None:
            raise Overloaded("all places in the vocoder's memory are taken", retry_after=1.0)
        key = sentence.voice.state_key if border(len(voice.tokens)) > 0 else ""
        kept = self._prompts.get(key) if key else None
        begun = 0 if kept is None else len(kept.pages)
        if kept is not None:
            self._pages.share(kept.pages)
        left = voice.mel[CHUNK_FRAMES * begun :]
        blocks = -(-len(left) // CHUNK_FRAMES)
        padded = F.pad(left, (0, 0, 0, CHUNK_FRAMES * blocks - len(left))).view(blocks, CHUNK_FRAMES, left.shape[1])
        self._vocoder.forget(slot)
        return PagedState(
            pool=self._pages,
            page_bytes=self._flow.page_bytes,
            slots=self._slots,
            slot=slot,
            prompt=voice.tokens,
            key=key,
            speaker=self._flow.speaker(voice.embedding) if kept is None else kept.speaker,
            conditions=padded.to(self._flow.device, torch.float32),
            conditions_from=begun,
            stretch=MelStretch.start(sentence.speed, self._flow.device),
            seed=sentence.seed,
            sentence=sentence.sentence_index,
            position=CHUNK_TOKENS * begun,
            pages=[] if kept is None else list(kept.pages),
            shared=begun,
            prompt_cached=kept is not None if key else None,
        )

    @torch.inference_mode()
    def step(self, strides: Sequence[Stride[PagedState]]) -> list[Decoded | CosyserveError | None]:
        """Blocks and windows of all streams; see `Decoder.step`."""
        began = time.time_ns()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)] if self._cuda else []  # type: ignore[no-untyped-call]
        self._mark(marks, 0)
        turns = [_Turn(stride, stride.state.position) for stride in strides]
        self._blocks(turns)
        self._mark(marks, 1)
        middle = time.time_ns()
        self._sound(turns)
        self._mark(marks, 2)
        if self._cuda:
            torch.cuda.current_stream(self._flow.device).synchronize()
            middle = began + int(1e6 * marks[0].elapsed_time(marks[1]))
        end = time.time_ns()
        results = [self._result(turn, (began, middle), (middle, end)) for turn in turns]
        for turn in turns:
            self._remember(turn)
        return results

    def _mark(self, marks: list[torch.cuda.Event], at: int) -> None:
        if marks:
            marks[at].record()

    def _result(self, turn: _Turn, flow: tuple[int, int], vocoder: tuple[int, int]) -> Decoded | CosyserveError | None:
        state = turn.state
        if state.cancelled or turn.idle:
            return None
        if not all(finite.all() for finite in turn.finite):
            state.fault = NonFinite(f"the flow produced values that are not finite behind token {turn.start}")
        samples = np.concatenate(turn.samples) if turn.samples else _NO_SAMPLES
        if state.fault is None and not np.isfinite(samples).all():
            state.fault = NonFinite(f"the vocoder produced samples that are not finite before frame {state.rendered}")
        if state.fault is not None:
            return state.fault
        return Decoded(samples, turn.stride.until - turn.start, turn.frames, flow, vocoder if turn.frames else None)

    # --- flow

    def _blocks(self, turns: list[_Turn]) -> None:
        leaders: dict[tuple[str, int], _Turn] = {}
        followers: list[_Turn] = []
        work: list[tuple[_Turn, Unit]] = []
        for turn in turns:
            state = turn.state
            if state.cancelled or self._taken_over(turn):
                continue
            place = (state.key, turn.stride.until)
            if state.key and turn.stride.until <= state.inside and not state.recomputing and place in leaders:
                followers.append(turn)
                continue
            units = self._units(turn)
            if units is None:
                self._recompute(turn)
                continue
            leaders.setdefault(place, turn)
            work += [(turn, unit) for unit in units]
        most = self._flow.buckets[-1]
        for first in range(0, len(work), most):
            part = work[first : first + most]
            mels = self._flow.run([unit for _, unit in part])
            finite = self._finite(mels)
            for at, (turn, unit) in enumerate(part):
                turn.finite.append(finite[at : at + 1])
                self._spoken(turn, unit.position, unit.tokens.numel(), mels[at])
        for turn in followers:
            turn.idle = not self._taken_over(turn, of=leaders[turn.state.key, turn.stride.until].state)

    def _finite(self, mels: Tensor) -> NDArray[np.bool_]:
        """bool [units], valid when the step has waited."""
        flags = torch.isfinite(mels).flatten(1).all(dim=1)
        found: NDArray[np.bool_] = torch.empty(len(mels), dtype=torch.bool, pin_memory=self._cuda).copy_(flags, non_blocking=True).numpy()
        return found

    def _taken_over(self, turn: _Turn, of: PagedState | None = None) -> bool:
        """Go on from the pages of the prompt cache, or of a stream of the same voice, instead of making them."""
        state, until = turn.state, turn.stride.until
        if not state.key or until > state.inside or state.recomputing:
            return False
        kept = self._prompts.get(state.key, count=False)
        pages = list(of.pages) if of is not None else list(kept.pages) if kept is not None else []
        if CHUNK_TOKENS * len(pages) < until:
            return False
        pages = pages[: until // CHUNK_TOKENS] if of is not None else pages
        self._pages.share(pages)
        old, state.pages = state.pages, pages
        self._pages.release(old)
        state.position, state.shared = CHUNK_TOKENS * len(pages), len(pages) if kept is not None else 0
        return True

    def _known(self, turn: _Turn) -> Tensor:
        return torch.cat([turn.state.prompt, torch.from_numpy(turn.stride.tokens)])

    def _units(self, turn: _Turn) -> list[Unit] | None:
        """The blocks up to the stride's end, with pages taken for them; None when there are no pages."""
        state, until = turn.state, turn.stride.until
        if state.recomputing:
            return None
        count = -(-until // CHUNK_TOKENS) - len(state.pages)
        taken = self._pages.take(count)
        while taken is None and self._prompts.evict():
            taken = self._pages.take(count)
        if taken is None:
            state.give_up_pages()
            return None
        first = len(state.pages)
        state.pages += taken
        known = self._known(turn)
        units = [self._unit(state, known, at, state.pages[: at + 1], until) for at in range(first, len(state.pages))]
        state.position = until
        return units

    def _unit(self, state: PagedState, known: Tensor, at: int, pages: list[int], until: int) -> Unit:
        end = min(CHUNK_TOKENS * (at + 1), until)
        complete = end == CHUNK_TOKENS * (at + 1)
        ahead = known[end : end + LOOKAHEAD_TOKENS] if complete else known[:0]
        place = at - state.conditions_from
        condition = state.conditions[place] if 0 <= place < len(state.conditions) else None
        return Unit(pages, known[CHUNK_TOKENS * at : end], ahead, state.speaker, condition)

    def _recompute(self, turn: _Turn) -> None:
        """All blocks up to the stride's end over scratch pages; those from the position on are new."""
        state, until = turn.state, turn.stride.until
        count, first = -(-until // CHUNK_TOKENS), turn.start // CHUNK_TOKENS
        if count > self._flow.most:
            state.fault = Overloaded(
                f"no room to keep the state of a sentence of {until} tokens, and at most {CHUNK_TOKENS * self._flow.most} are made again"
            )
            return
        known = self._known(turn)
        units = [self._unit(state, known, at, list(range(1, at + 2)), until) for at in range(count)]
        mels = self._flow.recompute(units)
        self.recomputed += first
        turn.finite.append(self._finite(mels[first:]))
        for at in range(first, count):
            self._spoken(turn, at, units[at].tokens.numel(), mels[at])
        state.position = until

    def _spoken(self, turn: _Turn, block: int, tokens: int, mel: Tensor) -> None:
        """Keep a copy of the frames behind the prompt."""
        first = max(MEL_FRAMES_PER_TOKEN * len(turn.state.prompt) - CHUNK_FRAMES * block, 0)
        last = MEL_FRAMES_PER_TOKEN * tokens
        if first < last:
            turn.mels.append(mel[first:last].clone())
            turn.frames += last - first

    def _remember(self, turn: _Turn) -> None:
        """Keep the pages inside the prompt when they are complete, for the next stream of the voice."""
        state = turn.state
        if (
            not state.key
            or state.recomputing
            or state.cancelled
            or state.fault is not None
            or turn.start >= state.inside
            or state.position < state.inside
        ):
            return
        inside = state.inside // CHUNK_TOKENS
        self._prompts.put(state.key, PromptPages(tuple(state.pages[:inside]), state.speaker))
        state.shared = inside if state.key in self._prompts else 0

    # --- sound

    def _sound(self, turns: list[_Turn]) -> None:
        fresh = {
            id(turn): self._stretched(turn)
            for turn in turns
            if not turn.state.cancelled and turn.state.fault is None and (turn.mels or turn.stride.final)
        }
        due = [turn for turn in turns if id(turn) in fresh]
        while due:
            writes = [(turn, mel[:WINDOW_FRAMES]) for turn in due if len(mel := fresh[id(turn)])]
            if writes:
                self._vocoder.write([t.state.slot for t, _ in writes], [t.state.received for t, _ in writes], [mel for _, mel in writes])
            for turn, mel in writes:
                turn.state.received += len(mel)
                fresh[id(turn)] = fresh[id(turn)][WINDOW_FRAMES:]
            for turn in due:
                turn.state.ended = turn.stride.final and not len(fresh[id(turn)])
            while ready := [turn for turn in due if self._renderable(turn.state)]:
                self._render(ready)
            due = [turn for turn in due if len(fresh[id(turn)])]

    def _stretched(self, turn: _Turn) -> Tensor:
        mel = torch.cat(turn.mels) if turn.mels else turn.state.speaker.new_zeros(0, 80)
        if turn.state.stretch.speed == 1.0:
            return mel
        return MelStretch.step(turn.state.stretch, mel.T, turn.stride.final).T

    def _renderable(self, state: PagedState) -> int:
        """Frames whose samples are settled, one window at most."""
        settled = state.received if state.ended else state.received - self._vocoder.hold_back_frames
        return max(min(settled - state.rendered, WINDOW_FRAMES), 0)

    def _render(self, turns: list[_Turn]) -> None:
        most = self._vocoder.buckets[-1]
        for first in range(0, len(turns), most):
            part = turns[first : first + most]
            counts = [self._renderable(turn.state) for turn in part]
            samples = self._vocoder.run([self._window(turn.state, count) for turn, count in zip(part, counts, strict=True)])
            host = torch.empty(samples.shape, pin_memory=self._cuda).copy_(samples, non_blocking=True)
            for at, (turn, count) in enumerate(zip(part, counts, strict=True)):
                turn.state.rendered += count
                # Looked at when the copy is done.
                turn.samples.append(host[at, : SAMPLES_PER_MEL_FRAME * count].numpy())

    @staticmethod
    def _window(state: PagedState, count: int) -> Render:
        return Render(state.slot, state.rendered, count, state.received if state.ended else None, state.seed, state.sentence)
