"""The whole sentence at once under full attention: quality over latency. Nothing leaves before all tokens are known.

Source: compatibility specification sections 4.6 and 6.2.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cosyserve.errors import CosyserveError
from services.token2wav.continuous import as_prompt
from services.token2wav.decoder import Decoded, Stride
from services.token2wav.flow.flow import Cancelled, Flow
from services.token2wav.request import Sentence, Voice
from services.token2wav.vocoder.stretch import MelStretch
from services.token2wav.vocoder.vocoder import Vocoder
from services.token2wav.voice_prompt import VoicePrompt


@dataclass(eq=False)
class OfflineState:
    """One sentence; it holds no memory between steps, as there is only one."""

    sentence: Sentence
    voice: VoicePrompt
    position: int
    bytes: int = 0
    cancelled: bool = False

    def reach(self, end: int) -> int:
        return end

    def early(self, tokens: int) -> int:
        return self.position

    def cancel(self) -> None:
        self.cancelled = True


class OfflineDecoder:
    widest_step = 1
    token_bytes = 0
    """Every step starts from the first token; what it computes is given back at its end."""

    def __init__(self, flow: Flow, vocoder: Vocoder) -> None:
        self._flow = flow
        self._vocoder = vocoder

    def start(self, sentence: Sentence) -> OfflineState:
        voice = as_prompt(sentence.voice)
        return OfflineState(sentence, voice, len(voice.tokens))

    def start_bytes(self, voice: Voice) -> int:
        return 0

    @torch.inference_mode()
    def step(self, strides: Sequence[Stride[OfflineState]]) -> list[Decoded | CosyserveError | None]:
        return [self._whole(stride) for stride in strides]

    def _whole(self, stride: Stride[OfflineState]) -> Decoded | None:
        state, began = stride.state, time.time_ns()
        try:
            mel = self._flow.offline(state.voice, torch.from_numpy(stride.tokens), stop=lambda: state.cancelled)
        except Cancelled:
            return None
        middle = time.time_ns()
        sentence = state.sentence
        samples = self._vocoder.offline(MelStretch.offline(mel, sentence.speed), sentence.seed, sentence.sentence_index)
        work, state.position = stride.until - state.position, stride.until
        return Decoded(samples.cpu().numpy(), work, mel.shape[1], (began, middle), (middle, time.time_ns()))
