"""Replaces the decoder of the continuous profile if the estimator does not support streaming
masks.
"""

from collections.abc import Sequence
from typing import NoReturn

from cosyserve.errors import CosyserveError, FailedPrecondition
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.decoders.whole_hop import OneStepState
from services.token2wav.inputs.request import Sentence, Voice


class RefusingDecoder:
    """Refuses every stream before any work and names the profiles that are available."""

    widest_step = 1
    goes_on_without_room = False
    token_bytes = 0

    def start_bytes(self, voice: Voice) -> NoReturn:
        """Raises FailedPrecondition."""
        raise FailedPrecondition(
            "this server's estimator is the published one, which has full attention only: PROFILE_CONTINUOUS needs "
            "streaming masks; ask for PROFILE_OFFLINE or PROFILE_UPSTREAM"
        )

    def start(self, sentence: Sentence) -> OneStepState:
        """Raises FailedPrecondition."""
        self.start_bytes(sentence.voice)

    def step(self, step_inputs: Sequence[StepInput[OneStepState]]) -> list[Decoded | CosyserveError | None]:
        """Never called, because no stream starts."""
        return [None for _ in step_inputs]
