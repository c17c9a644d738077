"""The profile that is served: one grid block at a time, every stage carried on, so that samples do
not depend on the hops.

Whatever the hops are, a stream goes through the same calls in the same order: block k of the flow,
then stretch and vocoder with the frames of block k. Blocks that lie inside the prompt are worked
off before the first token arrives, and kept for the next request. Streams of one voice that begin
together take each such block from the one that has it first.
"""

import time
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import CosyserveError
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.blocks_ahead import BlocksAhead, Span, take_early
from services.token2wav.decoders.continuous_state import ContinuousState as ContinuousState
from services.token2wav.decoders.interface import Decoded, Stride
from services.token2wav.decoders.prompt_cache import PromptCache, PromptCacheStats
from services.token2wav.flow.flow import Flow
from services.token2wav.inputs.chunking import last_border
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.inputs.voice_prompt import as_prompt
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder
from services.token2wav.vocoder.window import window_frames

_NO_SAMPLES = np.zeros(0, np.float32)


class ContinuousDecoder:
    """widest_step: streams that share a step. prompt_cache_bytes: memory for states behind prompts,
    which streams then share. ahead: where there is a core to make blocks early on."""

    goes_on_without_room = False

    def __init__(
        self,
        flow: Flow,
        vocoder: Vocoder,
        *,
        widest_step: int,
        prompt_cache_bytes: int,
        ahead: BlocksAhead | None = None,
    ) -> None:
        self.widest_step = widest_step
        self._flow = flow
        self._vocoder = vocoder
        self._ahead = ahead
        self._prompts = PromptCache(prompt_cache_bytes)
        self._nothing = torch.zeros(MEL_BINS, 0, device=flow.device)

    @property
    def token_bytes(self) -> int:
        """Keys and values of the flow; what the vocoder keeps does not grow."""
        return MEL_FRAMES_PER_TOKEN * self._flow.config.state_bytes_per_frame(self._flow.estimator.dtype)

    def start(self, sentence: Sentence) -> ContinuousState:
        """A stream at the first prompt token, or at the last border inside the prompt when the
        state there is kept.

        Raises InvalidRequest for a voice that the model cannot use.
        """
        voice, key = sentence.voice, sentence.voice.state_key
        prompt = torch.from_numpy(voice.tokens)
        phase = MEL_FRAMES_PER_TOKEN * (-len(prompt) % CHUNK_TOKENS)
        shared = bool(key) and last_border(len(prompt)) > 0
        kept = self._prompts.get(key) if shared else None
        return ContinuousState(
            prompt=prompt,
            key=key if shared else "",
            flow=self._flow.start(as_prompt(voice)) if kept is None else self._flow.fork(kept),
            stretch=MelStretch.start(sentence.speed, self._flow.device),
            vocoder=self._vocoder.start(sentence.seed, sentence.sentence_index, phase, window_frames(sentence.speed)),
            kept=None if kept is None else weakref.ref(kept),
            prompt_cached=kept is not None if shared else None,
        )

    @property
    def prompts(self) -> PromptCacheStats:
        """Of the prompt cache. May be called from any thread."""
        return self._prompts.stats

    def start_bytes(self, voice: Voice) -> int:
        """Bytes for the prompt, 0 when its state is kept and shared. May be called from any
        thread.
        """
        if voice.state_key in self._prompts:
            return 0
        return len(voice.tokens) * self.token_bytes

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[Stride[ContinuousState]]) -> list[Decoded | CosyserveError | None]:
        """One grid block of each stream through flow, stretch and vocoder; see `Decoder.step`."""
        starts = [step_input.state.position for step_input in step_inputs]
        mels, flows = self._made(step_inputs)
        middle = time.time_ns()
        fresh = [self._spoken(*each) for each in zip(step_inputs, starts, mels, strict=True)]
        samples = self._sound(step_inputs, fresh)
        end = time.time_ns()
        return [
            step_input.state.flow.fault or step_input.state.vocoder.fault
            if mel is None or sound is None
            else Decoded(sound, step_input.until - start, mel.shape[1], flow, (middle, end) if mel.shape[1] else None)
            for step_input, start, mel, flow, sound in zip(step_inputs, starts, fresh, flows, samples, strict=True)
        ]

    def _made(self, step_inputs: Sequence[Stride[ContinuousState]]) -> tuple[list[Tensor | None], list[Span]]:
        """The mel of each stream's block, and when the flow made it; blocks that follow are
        begun.
        """
        found = [take_early(step_input.state, step_input.until) for step_input in step_inputs]
        began = time.time_ns()
        missing = iter(
            self._blocks([step_input for step_input, early in zip(step_inputs, found, strict=True) if early is None])
        )
        blocks = [(next(missing), None) if early is None else early for early in found]
        now = (began, time.time_ns())
        for step_input in step_inputs:
            if self._ahead is not None and not step_input.final:
                self._ahead.begin(step_input.state, step_input.tokens)
        return [mel for mel, _ in blocks], [span or now for _, span in blocks]

    def _blocks(self, step_inputs: Sequence[Stride[ContinuousState]]) -> list[Tensor | None]:
        """The mel [80, 2n] of each stream's grid block, prompt frames included; none of them for a
        block that another stream made.
        """
        mels: list[Tensor | None] = [None] * len(step_inputs)
        ours, theirs, claimed = [], [], set[tuple[str, int]]()
        for at, step_input in enumerate(step_inputs):
            if self._taken_over(step_input.state, step_input.until):
                mels[at] = self._nothing
            elif self._is_shared(step_input) and (step_input.state.key, step_input.until) in claimed:
                theirs.append(at)
            else:
                claimed.add((step_input.state.key, step_input.until))
                ours.append(at)
        for at, mel in zip(ours, self._computed([step_inputs[at] for at in ours]), strict=True):
            mels[at] = mel
        for at in theirs:
            # Without an answer, as its leader was cancelled: it is due again in the next step.
            mels[at] = self._nothing if self._taken_over(step_inputs[at].state, step_inputs[at].until) else None
        return mels

    def _is_shared(self, step_input: Stride[ContinuousState]) -> bool:
        return bool(step_input.state.key) and step_input.until <= step_input.state.inside

    def _taken_over(self, state: ContinuousState, until: int) -> bool:
        """Go on from where another stream of the voice has come to inside the prompt."""
        if not state.key or until > state.inside or state.flow.cancelled:
            return False
        found = self._prompts.further(state.key, state.position)
        if found is None or found.position < until:
            return False
        before, state.flow = state.flow, self._flow.fork(found)
        if before.cancelled:
            state.flow.cancelled = True
        state.begun = None if state.key in self._prompts else found
        state.kept = weakref.ref(found) if state.key in self._prompts else None
        return True

    def _computed(self, step_inputs: Sequence[Stride[ContinuousState]]) -> list[Tensor | None]:
        tokens = [
            torch.cat([step_input.state.prompt, torch.from_numpy(step_input.tokens)]) for step_input in step_inputs
        ]
        spans = [(step_input.state.position, step_input.until) for step_input in step_inputs]
        mels = self._flow.blocks(
            [step_input.state.flow for step_input in step_inputs],
            [known[begin:end] for known, (begin, end) in zip(tokens, spans, strict=True)],
            [known[end : end + LOOKAHEAD_TOKENS] for known, (_, end) in zip(tokens, spans, strict=True)],
        )
        for step_input, mel in zip(step_inputs, mels, strict=True):
            if mel is not None:
                self._remember(step_input.state)
        return mels

    def _remember(self, state: ContinuousState) -> None:
        """Share what was made inside the prompt, and keep it when it is complete."""
        if not state.key or not 0 < state.position <= state.inside:
            state.begun = None
            return
        fork = self._flow.fork(state.flow)
        if state.position < state.inside:
            self._prompts.begin(state.key, fork)
            state.begun = fork
            return
        self._prompts.put(state.key, fork)
        kept = state.key in self._prompts
        state.kept, state.begun = (weakref.ref(fork), None) if kept else (None, fork)

    def _spoken(self, step_input: Stride[ContinuousState], start: int, mel: Tensor | None) -> Tensor | None:
        """The frames behind the prompt."""
        prompt = max(len(step_input.state.prompt) - start, 0)
        return None if mel is None else mel[:, MEL_FRAMES_PER_TOKEN * prompt :]

    def _sound(
        self, step_inputs: Sequence[Stride[ContinuousState]], fresh: list[Tensor | None]
    ) -> list[NDArray[np.float32] | None]:
        """Stretch and vocode the streams that have new frames, all in one vocoder step."""
        samples: list[NDArray[np.float32] | None] = [None if mel is None else _NO_SAMPLES for mel in fresh]
        work = [(i, step_inputs[i], mel) for i, mel in enumerate(fresh) if mel is not None and mel.shape[1]]
        if not work:
            return samples
        made = self._vocoder.step(
            [step_input.state.vocoder for _, step_input, _ in work],
            [MelStretch.step(step_input.state.stretch, mel, step_input.final) for _, step_input, mel in work],
            [step_input.final for _, step_input, _ in work],
        )
        for (i, _, _), sound in zip(work, made, strict=True):
            samples[i] = None if sound is None else sound.cpu().numpy()
        return samples
