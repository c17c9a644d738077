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
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from cosyserve.errors import CosyserveError, FailedPrecondition, NonFinite
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, SingleStreamDecoder, StepInput, StreamState
from services.token2wav.decoders.whole_hop import OneStepState
from services.token2wav.engines.flow import EngineFlow, Prefix
from services.token2wav.engines.shapes import USUAL_TOKENS, padded
from services.token2wav.flow.flow import as_prompt
from services.token2wav.inputs.chunking import next_border
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.vocoder.state import VocoderState, window_frames
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder


@dataclass(eq=False, kw_only=True)
class PrefixState(OneStepState):
    """One stream: the flow stores nothing of it, time stretch and vocoder store what they need."""

    speaker: Tensor
    stretch: MelStretch
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


class PrefixDecoder(SingleStreamDecoder):
    """Streams whose prefixes have the same padded length form a batch; the batches of a step run
    concurrently, one in each slot. widest_step: maximum number of streams in a step.
    """

    def __init__(self, flow: EngineFlow, vocoder: Vocoder, *, widest_step: int, slots: int) -> None:
        self.widest_step, self.flow, self._vocoder = widest_step, flow, vocoder
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="token2wav-slot")

    def start(self, sentence: Sentence) -> PrefixState:
        """A stream at the end of its prompt; nothing is computed yet."""
        voice = as_prompt(sentence.voice)
        return PrefixState(
            voice=voice,
            position=len(voice.tokens),
            speaker=self.flow.speaker(voice),
            stretch=MelStretch(sentence.speed, self.flow.device),
            vocoder=self._vocoder.start(
                sentence.seed,
                sentence.sentence_index,
                MEL_FRAMES_PER_TOKEN * (-len(voice.tokens) % CHUNK_TOKENS),
                window_frames(sentence.speed),
            ),
        )

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[PrefixState]]) -> list[Decoded | CosyserveError | None]:
        """One grid block of each stream through flow, time stretch and vocoder; see
        `Decoder.step`.
        """
        began = time.time_ns()
        mels = self._mels([self._prefix(step_input) for step_input in step_inputs])
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
            [step_input.state.stretch.step(mel, step_input.final) for _, step_input, mel in work],
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
        known = torch.cat([state.voice.tokens, torch.from_numpy(step_input.tokens)])
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


class RefusingDecoder(SingleStreamDecoder):
    """Refuses every stream before any work and names the profiles that are available."""

    def start_bytes(self, voice: Voice) -> NoReturn:
        """Raises FailedPrecondition."""
        raise FailedPrecondition(
            "this server's estimator is the published one, which has full attention only: PROFILE_CONTINUOUS needs "
            "streaming masks; ask for PROFILE_OFFLINE or PROFILE_UPSTREAM"
        )

    def start(self, sentence: Sentence) -> NoReturn:
        """Raises FailedPrecondition."""
        self.start_bytes(sentence.voice)

    def step(self, step_inputs: Sequence[StepInput[StreamState]]) -> list[Decoded | CosyserveError | None]:
        """Never called, because no stream starts."""
        return [None for _ in step_inputs]
