"""The decoder of profile `upstream` for flows whose reference streams from kept state: a hop is one
call of the flow and one of the vocoder, call for call as the reference makes them.

The state is the reference's too, with its cut and its noise (`flow.past.ReferenceCut`), so the
audio depends on the hops. It serves comparisons.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cosyserve.errors import CosyserveError
from cosyserve.spec import MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, SingleStreamDecoder, StepInput
from services.token2wav.flow.flow import Flow, as_prompt
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.flow.past import Past
from services.token2wav.inputs.chunking import Grid
from services.token2wav.inputs.request import Cancelled, Sentence
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.vocoder import Vocoder


@dataclass(eq=False, kw_only=True)
class KeptHopsState:
    """One sentence. position: tokens whose audio has left, those of the prompt included, which is
    computed with the first hop.
    """

    prompt: torch.Tensor
    grid: Grid
    flow: FlowState
    vocoder: UpstreamVocoderState
    position: int
    prompt_cached: None = None
    recomputing: bool = False

    @property
    def bytes(self) -> int:
        """Bytes held between steps."""
        return self.flow.bytes + self.vocoder.bytes

    def reach(self, end: int) -> int:
        """The end: whatever is due is one step."""
        return end

    def early(self, tokens: int) -> int:
        """Nothing is computed before a hop is due."""
        return self.position

    def cancel(self) -> None:
        """The flow skips the stream from the next Euler step on. May be called from any thread."""
        self.flow.cancelled = True

    def stop(self) -> bool:
        """Polled between the convolutions of the vocoder."""
        return self.flow.cancelled


class KeptHopsDecoder(SingleStreamDecoder):
    """See `Decoder`; one stream in a step."""

    def __init__(self, flow: Flow, vocoder: Vocoder, past: Past) -> None:
        self._flow, self._vocoder, self._past = flow, vocoder, past

    @property
    def whole_prompt(self) -> bool:
        """See `DecodesPromptWhole`."""
        return self._past.whole_prompt

    def start(self, sentence: Sentence) -> KeptHopsState:
        """A stream of which nothing is computed yet."""
        voice = as_prompt(sentence.voice)
        return KeptHopsState(
            prompt=voice.tokens,
            grid=Grid(len(voice.tokens), self.whole_prompt),
            flow=self._flow.start(voice, past=self._past),
            vocoder=UpstreamVocoderState(seed=sentence.seed, sentence=sentence.sentence_index),
            position=len(voice.tokens),
        )

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[KeptHopsState]]) -> list[Decoded | CosyserveError | None]:
        """See `Decoder.step`. Raises NonFinite for samples that are not finite."""
        return [self._hop(step_input) for step_input in step_inputs]

    def _hop(self, step_input: StepInput[KeptHopsState]) -> Decoded | CosyserveError | None:
        state, began = step_input.state, time.time_ns()
        mel = self._mel(step_input)
        if mel is None:
            return state.flow.fault
        middle = time.time_ns()
        try:
            samples = self._vocoder.step_upstream(state.vocoder, mel, step_input.final, stop=state.stop)
        except Cancelled:
            return None
        work, state.position = step_input.until - state.position, step_input.until
        frames = MEL_FRAMES_PER_TOKEN * work
        return Decoded(samples.cpu().numpy(), work, frames, (began, middle), (middle, time.time_ns()))

    def _mel(self, step_input: StepInput[KeptHopsState]) -> torch.Tensor | None:
        """Of the hop, without the prompt, which is computed before the first hop. None if the
        stream was cancelled or has a fault.
        """
        state, prompt = step_input.state, step_input.state.grid.prompt
        tokens = torch.cat((state.prompt, torch.from_numpy(step_input.tokens)))
        if state.flow.position < prompt and self._call(state, tokens, prompt, final=False) is None:
            return None
        return self._call(state, tokens, step_input.until, final=step_input.final)

    def _call(self, state: KeptHopsState, tokens: torch.Tensor, end: int, *, final: bool) -> torch.Tensor | None:
        ahead = tokens[:0] if final else tokens[state.grid.lookahead(end)]
        (mel,) = self._flow.blocks([state.flow], [tokens[state.flow.position : end]], [ahead])
        return mel
