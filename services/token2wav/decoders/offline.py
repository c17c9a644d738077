"""Decodes the whole sentence in one step under full attention: quality over latency. No audio
leaves before all tokens are known.

A cancelled sentence is abandoned before its next Euler step or, in the vocoder, before the next
second of noise or the next convolution. The longest computation that cannot be interrupted is one
Euler step, or one layer of the vocoder, over the whole sentence.

Source: compatibility specification sections 4.6 and 6.2.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cosyserve.errors import CosyserveError
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.whole_hop import OneStepState, WholeFlow
from services.token2wav.flow.flow import as_prompt
from services.token2wav.inputs.cancellation import Cancelled
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder


@dataclass(eq=False, kw_only=True)
class OfflineState(OneStepState):
    """One sentence; it holds no memory between steps, because it has only one."""

    sentence: Sentence


class OfflineDecoder:
    """One sentence in one step that no other stream shares; see `Decoder`."""

    widest_step = 1
    goes_on_without_room = False
    token_bytes = 0
    """Every step starts from the first token and frees its memory at the end."""

    def __init__(self, flow: WholeFlow, vocoder: Vocoder) -> None:
        self._flow = flow
        self._vocoder = vocoder

    def start(self, sentence: Sentence) -> OfflineState:
        """A stream at the end of the prompt; nothing is computed yet."""
        voice = as_prompt(sentence.voice)
        return OfflineState(voice=voice, position=len(voice.tokens), sentence=sentence)

    def start_bytes(self, voice: Voice) -> int:
        """0: no state of the prompt is stored between steps."""
        return 0

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[OfflineState]]) -> list[Decoded | CosyserveError | None]:
        """See `Decoder.step`. Raises NonFinite for values that are not finite."""
        return [self._decode(step_input) for step_input in step_inputs]

    def _decode(self, step_input: StepInput[OfflineState]) -> Decoded | None:
        state, began = step_input.state, time.time_ns()
        sentence = state.sentence
        try:
            mel = self._flow.offline(state.voice, torch.from_numpy(step_input.tokens), stop=state.stop)
            middle = time.time_ns()
            stretched = MelStretch.offline(mel, sentence.speed)
            samples = self._vocoder.offline(stretched, sentence.seed, sentence.sentence_index, stop=state.stop)
        except Cancelled:
            return None
        work, state.position = step_input.until - state.position, step_input.until
        return Decoded(samples.cpu().numpy(), work, mel.shape[1], (began, middle), (middle, time.time_ns()))
