"""The decoder of the profiles `upstream` and `offline`, which takes a whole hop in one step and
computes it from the first token on.

Upstream is the reference's own streaming, call for call: the last hop is computed without streaming
masks. HiFT cross-fades its seams; causal HiFT renders all frames again. It serves comparisons; its
audio depends on the hops. Offline decodes the whole sentence as one hop under full attention:
quality over latency. No audio leaves before all tokens are known.

Source: compatibility specification of CosyVoice2, sections 4.6, 6.1 and 6.2, and of CosyVoice3,
section 6.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from cosyserve.errors import CosyserveError
from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.decoders.interface import Decoded, SingleStreamDecoder, StepInput
from services.token2wav.flow.flow import VoicePrompt, as_prompt
from services.token2wav.inputs.request import Cancelled, Profile, Sentence, Stop, never
from services.token2wav.vocoder.state import UpstreamVocoderState
from services.token2wav.vocoder.time_stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder


class WholeFlow(Protocol):
    """A flow without state between calls, in torch or as an engine; see `Flow.prefix`."""

    def prefix(
        self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop = never
    ) -> Tensor: ...


@dataclass(eq=False, kw_only=True)
class OneStepState:
    """One stream of a decoder that computes from the first token on, with little or no state
    between its steps. position counts from the first prompt token.
    """

    voice: VoicePrompt
    position: int
    cancelled: bool = False
    prompt_cached: None = None
    recomputing: bool = False
    """False, although every step starts from the first token: the stream never had memory to give
    up.
    """

    def early(self, tokens: int) -> int:
        """Nothing can be computed before a hop is due."""
        return self.position

    def stop(self) -> bool:
        """Polled before each Euler step and between the convolutions of the vocoder."""
        return self.cancelled


@dataclass(eq=False, kw_only=True)
class WholeHopState(OneStepState):
    """One sentence. The tokens between the end of the prompt and `position` have been decoded.
    vocoder: what an upstream sentence stores between two hops; None for an offline one.
    """

    sentence: Sentence
    vocoder: UpstreamVocoderState | None = None

    @property
    def bytes(self) -> int:
        """Bytes held between steps: see `UpstreamVocoderState.mel`."""
        return 0 if self.vocoder is None else self.vocoder.bytes

    def reach(self, end: int) -> int:
        """The end: whatever is due is one step."""
        return end

    def cancel(self) -> None:
        """See `stop`. May be called from any thread."""
        self.cancelled = True


class WholeHopDecoder(SingleStreamDecoder):
    """One hop in one step that no other stream shares; see `Decoder`. Every step starts from the
    first token and frees its memory at the end.

    A cancelled sentence is abandoned before its next Euler step or, in the vocoder, before the next
    second of noise or the next convolution. The longest computation that cannot be interrupted is
    one Euler step, or one layer of the vocoder, over everything up to the end of the hop.
    """

    def __init__(self, flow: WholeFlow, vocoder: Vocoder) -> None:
        self._flow, self._vocoder = flow, vocoder

    def start(self, sentence: Sentence) -> WholeHopState:
        """A stream at the end of the prompt; nothing is computed yet."""
        voice, upstream = as_prompt(sentence.voice), sentence.profile is Profile.UPSTREAM
        vocoder = UpstreamVocoderState(seed=sentence.seed, sentence=sentence.sentence_index) if upstream else None
        return WholeHopState(voice=voice, position=len(voice.tokens), sentence=sentence, vocoder=vocoder)

    @torch.inference_mode()
    def step(self, step_inputs: Sequence[StepInput[WholeHopState]]) -> list[Decoded | CosyserveError | None]:
        """See `Decoder.step`. Raises NonFinite for values that are not finite."""
        return [self._hop(step_input) for step_input in step_inputs]

    def _hop(self, step_input: StepInput[WholeHopState]) -> Decoded | None:
        state, final, began = step_input.state, step_input.final, time.time_ns()
        prompt = len(state.voice.tokens)
        known = step_input.until - prompt + (0 if final else LOOKAHEAD_TOKENS)
        tokens = torch.from_numpy(step_input.tokens[:known])
        try:
            mel = self._flow.prefix(state.voice, tokens, streaming=not final, final=final, stop=state.stop)
            middle = time.time_ns()
            new = mel[:, MEL_FRAMES_PER_TOKEN * (state.position - prompt) :]
            samples = self._samples(state, new, final)
        except Cancelled:
            return None
        work, state.position = step_input.until - state.position, step_input.until
        return Decoded(samples.cpu().numpy(), work, new.shape[1], (began, middle), (middle, time.time_ns()))

    def _samples(self, state: WholeHopState, mel: Tensor, final: bool) -> Tensor:
        if state.vocoder is not None:
            return self._vocoder.step_upstream(state.vocoder, mel, final, stop=state.stop)
        sentence = state.sentence
        stretched = MelStretch.offline(mel, sentence.speed)
        return self._vocoder.offline(stretched, sentence.seed, sentence.sentence_index, stop=state.stop)
