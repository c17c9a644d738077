"""The served profile: one grid block at a time, with the state of every stage carried over, so that
samples do not depend on the hops.

Whatever the hops are, a stream makes the same calls in the same order: block k of the flow, then
time stretch and vocoder with the frames of block k. Blocks inside the prompt are computed before
the first token arrives, and cached for the next request. Streams of one voice that start at the
same time share each such block: the first stream that has it computes it for all.
"""

import time
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import CosyserveError
from cosyserve.spec import MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.continuous_state import BlocksAhead, ContinuousState, Span, take_early
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.prompt_cache import PromptCache, PromptCacheStats
from services.token2wav.flow.flow import Flow, as_prompt
from services.token2wav.inputs.chunking import Grid
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.vocoder.state import window_frames
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder

_NO_SAMPLES = np.zeros(0, np.float32)


class ContinuousDecoder:
    """widest_step: maximum number of streams in a step. prompt_cache_bytes: memory for the cached
    states of prompts, which streams share. ahead: computes blocks early, where a core is idle.
    """

    goes_on_without_room = False
    takes_fewer_steps = True

    def __init__(
        self,
        flow: Flow,
        vocoder: Vocoder,
        *,
        widest_step: int,
        prompt_cache_bytes: int,
        ahead: BlocksAhead | None = None,
    ) -> None:
        self.widest_step, self._flow, self._vocoder, self._ahead = widest_step, flow, vocoder, ahead
        self._prompts = PromptCache(prompt_cache_bytes)
        self._nothing = torch.zeros(MEL_BINS, 0, device=flow.device)

    @property
    def token_bytes(self) -> int:
        """Keys and values of the flow; the vocoder's state does not grow."""
        return MEL_FRAMES_PER_TOKEN * self._flow.config.state_bytes_per_frame(self._flow.estimator.dtype)

    @property
    def whole_prompt(self) -> bool:
        """See `DecodesPromptWhole`."""
        return self._flow.past.whole_prompt

    def growth_bytes(self, tokens: int) -> int:
        """See `BoundsItsState`."""
        frames, held = MEL_FRAMES_PER_TOKEN * tokens, self._flow.past.held_frames
        kept = frames if held is None else min(frames, held)
        config = self._flow.config
        encoder = int((frames - kept) * config.encoder_bytes_per_frame)
        return kept * config.state_bytes_per_frame(self._flow.estimator.dtype) + encoder

    def start(self, sentence: Sentence) -> ContinuousState:
        """A stream at the first prompt token, or at the last border inside the prompt if the state
        there is cached.
        """
        voice, key = sentence.voice, sentence.voice.state_key
        prompt = torch.from_numpy(voice.tokens)
        grid = Grid(len(prompt), self.whole_prompt)
        shared = bool(key) and grid.last_border() > 0
        cached = self._prompts.get(key) if shared else None
        return ContinuousState(
            prompt=prompt,
            grid=grid,
            key=key if shared else "",
            flow=self._flow.start(as_prompt(voice), sentence.euler_steps)
            if cached is None
            else self._flow.fork(cached),
            stretch=MelStretch(sentence.speed, self._flow.device),
            vocoder=self._vocoder.start(
                sentence.seed, sentence.sentence_index, grid.frames_to_border(), window_frames(sentence.speed)
            ),
            cached=None if cached is None else weakref.ref(cached),
            prompt_cached=cached is not None if shared else None,
        )

    @property
    def prompts(self) -> PromptCacheStats:
        """Statistics of the prompt cache. May be called from any thread."""
        return self._prompts.stats

    def start_bytes(self, voice: Voice) -> int:
        """Bytes for the prompt, 0 if its state is cached and shared. May be called from any
        thread.
        """
        return 0 if voice.state_key in self._prompts else len(voice.tokens) * self.token_bytes

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[ContinuousState]]) -> list[Decoded | CosyserveError | None]:
        """One grid block of each stream through flow, time stretch and vocoder; see
        `Decoder.step`.
        """
        starts = [step_input.state.position for step_input in step_inputs]
        mels, flows = self._timed_mels(step_inputs)
        middle = time.time_ns()
        new_mels = [self._generated(*each) for each in zip(step_inputs, starts, mels, strict=True)]
        samples = self._samples(step_inputs, new_mels)
        end = time.time_ns()
        return [
            step_input.state.flow.fault or step_input.state.vocoder.fault
            if mel is None or audio is None
            else Decoded(audio, step_input.until - start, mel.shape[1], flow, (middle, end) if mel.shape[1] else None)
            for step_input, start, mel, flow, audio in zip(step_inputs, starts, new_mels, flows, samples, strict=True)
        ]

    def _timed_mels(self, step_inputs: Sequence[StepInput[ContinuousState]]) -> tuple[list[Tensor | None], list[Span]]:
        """The mel of each stream's block and when the flow computed it; starts the next blocks
        early.
        """
        early_blocks = [take_early(step_input.state, step_input.until) for step_input in step_inputs]
        began = time.time_ns()
        missing = iter(
            self._blocks(
                [step_input for step_input, early in zip(step_inputs, early_blocks, strict=True) if early is None]
            )
        )
        blocks = [(next(missing), None) if early is None else early for early in early_blocks]
        now = (began, time.time_ns())
        for step_input in step_inputs:
            if self._ahead is not None and not step_input.final:
                self._ahead.begin(step_input.state, step_input.tokens)
        return [mel for mel, _ in blocks], [span or now for _, span in blocks]

    def _blocks(self, step_inputs: Sequence[StepInput[ContinuousState]]) -> list[Tensor | None]:
        """The mel [80, 2n] of each stream's grid block, prompt frames included; no frames for a
        block that another stream computed.
        """
        mels: list[Tensor | None] = [None] * len(step_inputs)
        ours, theirs, claimed = [], [], set[tuple[str, int]]()
        for at, step_input in enumerate(step_inputs):
            state, until = step_input.state, step_input.until
            if self._adopt_shared(state, until):
                mels[at] = self._nothing
            elif state.key and until <= state.inside and (state.key, until) in claimed:
                theirs.append(at)
            else:
                claimed.add((state.key, until))
                ours.append(at)
        for at, mel in zip(ours, self._compute([step_inputs[at] for at in ours]), strict=True):
            mels[at] = mel
        for at in theirs:
            # No mel if the stream that computed the block was cancelled; the block is then due
            # again in the next step.
            mels[at] = self._nothing if self._adopt_shared(step_inputs[at].state, step_inputs[at].until) else None
        return mels

    def _adopt_shared(self, state: ContinuousState, until: int) -> bool:
        """Continue from the position that another stream of the voice has reached inside the
        prompt.
        """
        if not state.key or until > state.inside or state.flow.cancelled:
            return False
        further = self._prompts.further(state.key, state.position)
        if further is None or further.position < until:
            return False
        before, state.flow = state.flow, self._flow.fork(further)
        if before.cancelled:
            state.flow.cancelled = True
        state.shared = None if state.key in self._prompts else further
        state.cached = weakref.ref(further) if state.key in self._prompts else None
        return True

    def _compute(self, step_inputs: Sequence[StepInput[ContinuousState]]) -> list[Tensor | None]:
        tokens = [
            torch.cat([step_input.state.prompt, torch.from_numpy(step_input.tokens)]) for step_input in step_inputs
        ]
        spans = [(step_input.state.position, step_input.until) for step_input in step_inputs]
        mels = self._flow.blocks(
            [step_input.state.flow for step_input in step_inputs],
            [known[begin:end] for known, (begin, end) in zip(tokens, spans, strict=True)],
            [
                known[step_input.state.grid.lookahead(step_input.until)]
                for known, step_input in zip(tokens, step_inputs, strict=True)
            ],
        )
        for step_input, mel in zip(step_inputs, mels, strict=True):
            if mel is not None:
                self._share(step_input.state)
        return mels

    def _share(self, state: ContinuousState) -> None:
        """Share the state inside the prompt with other streams, and cache it when the prompt is
        complete.
        """
        if not state.key or not 0 < state.position <= state.inside:
            state.shared = None
            return
        fork = self._flow.fork(state.flow)
        if state.position < state.inside:
            self._prompts.begin(state.key, fork)
            state.shared = fork
            return
        self._prompts.put(state.key, fork)
        cached = state.key in self._prompts
        state.cached, state.shared = (weakref.ref(fork), None) if cached else (None, fork)

    def _generated(self, step_input: StepInput[ContinuousState], start: int, mel: Tensor | None) -> Tensor | None:
        """The frames after the prompt."""
        prompt = max(len(step_input.state.prompt) - start, 0)
        return None if mel is None else mel[:, MEL_FRAMES_PER_TOKEN * prompt :]

    def _samples(
        self, step_inputs: Sequence[StepInput[ContinuousState]], new_mels: list[Tensor | None]
    ) -> list[NDArray[np.float32] | None]:
        """Stretch and vocode the streams that have new frames, all in one vocoder step."""
        samples: list[NDArray[np.float32] | None] = [None if mel is None else _NO_SAMPLES for mel in new_mels]
        work = [(i, step_inputs[i], mel) for i, mel in enumerate(new_mels) if mel is not None and mel.shape[1]]
        if not work:
            return samples
        rendered = self._vocoder.step(
            [step_input.state.vocoder for _, step_input, _ in work],
            [step_input.state.stretch.step(mel, step_input.final) for _, step_input, mel in work],
            [step_input.final for _, step_input, _ in work],
        )
        for (i, _, _), audio in zip(work, rendered, strict=True):
            samples[i] = None if audio is None else audio.cpu().numpy()
        return samples
