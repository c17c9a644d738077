"""The continuous profile by engines: each block is computed together with everything before it,
under streaming masks.

What a block sees does not depend on the hops, because every step is one block of the grid, computed
in a shape that depends only on its end. So streamed output equals whole output, as with stored
state. The price is that a block costs as much as its whole prefix: a sentence of n blocks costs
about n / 2 times as much as with stored state (`docs/engines.md` has figures).
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cosyserve.errors import CosyserveError, NonFinite
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.whole_hop import OneStepState
from services.token2wav.engines.flow import EngineFlow, Prefix
from services.token2wav.engines.shapes import USUAL_TOKENS, padded
from services.token2wav.flow.flow import as_prompt, check_length, check_tokens, check_voice
from services.token2wav.inputs.chunking import next_border
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.vocoder.state import VocoderState, window_frames
from services.token2wav.vocoder.time_stretch import MelStretch, StretchState
from services.token2wav.vocoder.vocoder import Vocoder


@dataclass(eq=False, kw_only=True)
class PrefixState(OneStepState):
    """One stream: the flow stores nothing of it, time stretch and vocoder store what they need."""

    speaker: Tensor
    stretch: StretchState
    vocoder: VocoderState
    fault: CosyserveError | None = None

    @property
    def bytes(self) -> int:
        """Bytes held between steps; constant."""
        return self.stretch.bytes + self.vocoder.bytes

    def reach(self, end: int) -> int:
        """The next border of the grid, at most `end`. The prompt's own borders are skipped, because
        nothing is stored there.
        """
        return next_border(self.position, end)

    def cancel(self) -> None:
        """Flow and vocoder skip this stream as soon as they can. May be called from any thread."""
        self.cancelled = self.vocoder.cancelled = True


class PrefixDecoder:
    """Streams whose prefixes have the same padded length form a batch; the batches of a step run
    concurrently, one in each slot.
    """

    goes_on_without_room = False
    token_bytes = 0

    def __init__(self, flow: EngineFlow, vocoder: Vocoder, *, widest_step: int, slots: int) -> None:
        self.widest_step = widest_step
        self.flow = flow
        self._vocoder = vocoder
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="token2wav-slot")

    def start(self, sentence: Sentence) -> PrefixState:
        """A stream at the end of its prompt; nothing is computed yet. Raises InvalidRequest for a
        voice that the model cannot use.
        """
        voice = as_prompt(sentence.voice)
        check_voice(voice, self.flow.config)
        check_length(len(voice.tokens))
        return PrefixState(
            voice=voice,
            position=len(voice.tokens),
            speaker=self.flow.speaker(voice),
            stretch=MelStretch.start(sentence.speed, self.flow.device),
            vocoder=self._vocoder.start(
                sentence.seed,
                sentence.sentence_index,
                MEL_FRAMES_PER_TOKEN * (-len(voice.tokens) % CHUNK_TOKENS),
                window_frames(sentence.speed),
            ),
        )

    def start_bytes(self, voice: Voice) -> int:
        """0: no state of the prompt is stored between steps."""
        return 0

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[PrefixState]]) -> list[Decoded | CosyserveError | None]:
        """One grid block of each stream through flow, time stretch and vocoder; see
        `Decoder.step`.
        """
        began = time.time_ns()
        prefixes = [self._prefix(step_input) for step_input in step_inputs]
        mels = self._mels(prefixes)
        middle = time.time_ns()
        results: list[Decoded | CosyserveError | None] = [None] * len(step_inputs)
        work = []
        for at, (step_input, mel) in enumerate(zip(step_inputs, mels, strict=True)):
            if mel is None or step_input.state.cancelled:
                continue
            if not bool(torch.isfinite(mel).all()):
                results[at] = NonFinite(
                    f"the flow produced values that are not finite behind token {step_input.state.position}"
                )
                continue
            work.append((at, step_input, mel[:, MEL_FRAMES_PER_TOKEN * step_input.state.position :]))
        rendered = self._vocoder.step(
            [step_input.state.vocoder for _, step_input, _ in work],
            [MelStretch.step(step_input.state.stretch, mel, step_input.final) for _, step_input, mel in work],
            [step_input.final for _, step_input, _ in work],
        )
        end = time.time_ns()
        for (at, step_input, mel), samples in zip(work, rendered, strict=True):
            if samples is None:
                results[at] = step_input.state.vocoder.fault
                continue
            tokens, step_input.state.position = step_input.until, step_input.until
            results[at] = Decoded(
                np.asarray(samples.cpu().numpy()), tokens, mel.shape[1], (began, middle), (middle, end)
            )
        return results

    def _prefix(self, step_input: StepInput[PrefixState]) -> Prefix:
        state = step_input.state
        spoken = torch.from_numpy(step_input.tokens)
        if spoken.numel():
            check_tokens(spoken, self.flow.config.vocabulary)
        known = torch.cat([state.voice.tokens, spoken])
        check_length(step_input.until)
        ahead = known[step_input.until : step_input.until + LOOKAHEAD_TOKENS]
        return Prefix(known[: step_input.until], ahead, state.voice.mel, state.speaker, state.stop)

    def _mels(self, prefixes: Sequence[Prefix]) -> list[Tensor | None]:
        """The mel of each prefix [80, 2n]; the slots run the batches concurrently."""
        groups: dict[int, list[int]] = {}
        for at, prefix in enumerate(prefixes):
            groups.setdefault(padded(prefix.ids.numel()), []).append(at)
        batches: list[list[int]] = []
        for length, members in groups.items():
            most = self.flow.batch if length <= USUAL_TOKENS else 1
            batches += [members[first : first + most] for first in range(0, len(members), most)]
        mels: list[Tensor | None] = [None] * len(prefixes)
        computed = self._threads.map(
            lambda batch: self.flow.prefixes([prefixes[at] for at in batch], streaming=True), batches
        )
        for batch, rows in zip(batches, computed, strict=True):
            for at, mel in zip(batch, rows, strict=True):
                mels[at] = mel
        return mels
