"""The reference's own streaming, call for call: every hop is computed from the first token on, and
the last one without streaming masks.

It serves comparisons. Its audio depends on the hops. Source: compatibility specification sections
6.1 and 6.2.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cosyserve.errors import CosyserveError
from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.whole_hop import OneStepState, WholeFlow
from services.token2wav.flow.flow import as_prompt
from services.token2wav.inputs.cancellation import Cancelled
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.vocoder import Vocoder


@dataclass(eq=False, kw_only=True)
class UpstreamState(OneStepState):
    """One stream. The tokens between the end of the prompt and `position` have been decoded."""

    vocoder: UpstreamVocoderState

    @property
    def bytes(self) -> int:
        """Bytes held between steps: the vocoder's cache of 8 frames."""
        return self.vocoder.bytes


class UpstreamDecoder:
    """One hop in one step that no other stream shares; see `Decoder`."""

    widest_step = 1
    goes_on_without_room = False
    token_bytes = 0
    """Every step starts from the first token and frees its memory at the end."""

    def __init__(self, flow: WholeFlow, vocoder: Vocoder) -> None:
        self._flow = flow
        self._vocoder = vocoder

    def start(self, sentence: Sentence) -> UpstreamState:
        """A stream at the end of the prompt; nothing is computed yet."""
        voice = as_prompt(sentence.voice)
        vocoder = self._vocoder.start_upstream(sentence.seed, sentence.sentence_index)
        return UpstreamState(voice=voice, position=len(voice.tokens), vocoder=vocoder)

    def start_bytes(self, voice: Voice) -> int:
        """0: no state of the prompt is stored between steps."""
        return 0

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[UpstreamState]]) -> list[Decoded | CosyserveError | None]:
        """See `Decoder.step`. Raises NonFinite for values that are not finite."""
        return [self._hop(step_input) for step_input in step_inputs]

    def _hop(self, step_input: StepInput[UpstreamState]) -> Decoded | None:
        state, began = step_input.state, time.time_ns()
        prompt = len(state.voice.tokens)
        spoken = state.position - prompt
        known = step_input.until - prompt + (0 if step_input.final else LOOKAHEAD_TOKENS)
        tokens = torch.from_numpy(step_input.tokens[:known])
        try:
            mel = self._flow.prefix(
                state.voice, tokens, streaming=not step_input.final, final=step_input.final, stop=state.stop
            )
            middle = time.time_ns()
            new = mel[:, MEL_FRAMES_PER_TOKEN * spoken :]
            samples = self._vocoder.step_upstream(state.vocoder, new, step_input.final, stop=state.stop)
        except Cancelled:
            return None
        work, state.position = step_input.until - state.position, step_input.until
        return Decoded(np.asarray(samples.cpu().numpy()), work, new.shape[1], (began, middle), (middle, time.time_ns()))
