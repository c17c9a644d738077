"""Reads a recording into a voice: the prompt and the speaker vector with which the model clones a
speaker; and the parts of a model directory that a voice depends on.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from cosyserve.errors import InternalFault, InvalidRequest
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_FRAMES_PER_TOKEN, SAMPLE_RATE, SPEAKER_DIMENSION, SPEECH_VOCABULARY
from services.frontend.prompts.features import fbank, whisper_mel
from services.frontend.prompts.features.mel import mel_spectrogram
from services.frontend.prompts.features.resample import resample
from services.frontend.prompts.finer_reading import conversion_step, step_within
from services.frontend.prompts.onnx_network import OnnxNetwork, Port
from services.frontend.prompts.recording_checks import check_recording
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import UNNAMED_GENERATION

SPEAKER_ENCODER = "campplus.onnx"
_NETWORK_RATE = whisper_mel.RATE
"""Sample rate of both networks, 16 kHz."""


@dataclass(frozen=True)
class ReadSpeech:
    """The speech tokens of a recording, 25 * rate of them a second."""

    tokens: tuple[int, ...]
    rate: float = 1.0


class PromptReader:
    """The speech tokenizer and the speaker encoder of a model directory. Holds no request state;
    thread-safe.

    device, threads: as in `OnnxNetwork`. Raises ModelError naming the file when one of the two is
    missing, malformed, or has another signature, and as `conversion_step`. Source: compatibility
    specifications of CosyVoice2, sections 1, 2.5 and 2.6, and CosyVoice3, section 2.4.
    """

    def __init__(self, directory: ModelDirectory, *, device: str = "cpu", threads: int = 1) -> None:
        self._generation = generation_of(directory)
        self._conversion_step = conversion_step(directory)
        self._tokenizer = OnnxNetwork(
            directory,
            self._generation.speech_tokenizer,
            [Port("tensor(float)", (1, whisper_mel.BINS, None)), Port("tensor(int32)", (1,))],
            Port("tensor(int32)", (1, None)),
            device=device,
            threads=threads,
        )
        self._speaker_encoder = OnnxNetwork(
            directory,
            SPEAKER_ENCODER,
            [Port("tensor(float)", (1, None, fbank.BINS))],
            Port("tensor(float)", (1, SPEAKER_DIMENSION)),
            device=device,
            threads=threads,
        )

    @property
    def provider(self) -> str:
        """The execution provider of the speech tokenizer, the larger of the two networks (see
        `OnnxNetwork.provider`).
        """
        return self._tokenizer.provider

    def read(self, voice_id: str, wave: Tensor, rate: int, transcript_ids: Iterable[int]) -> Voice:
        """The voice of a recording: its speech tokens, its mel of the same length and its speaker
        vector. Blocks for a fraction of its duration.

        wave: float32 [samples] in [-1, 1], mono, 1 to 30 s, on the CPU. rate: samples per second,
        from 16,000. transcript_ids: text token ids of its transcript. Raises InvalidRequest for a
        recording that `check_recording` refuses and for an id or a transcript that `Voice` refuses;
        InternalFault when the output of a network does not fit a voice.
        """
        wave = _checked(wave, rate)
        low = resample(wave[None], rate, _NETWORK_RATE)
        tokens = self._speech_tokens(low)
        mel = mel_spectrogram(resample(wave[None], rate, SAMPLE_RATE), self._generation.mel_highest_hertz)[0].T.numpy()
        length = min(len(mel) // MEL_FRAMES_PER_TOKEN, len(tokens))
        vector = self._speaker_vector(low[0])
        try:
            return Voice(
                voice_id, tuple(transcript_ids), tokens[:length], _bytes(mel[: MEL_FRAMES_PER_TOKEN * length]), vector
            )
        except ValueError as error:
            raise InvalidRequest(f"the voice's {error}") from error

    def speech_tokens(self, wave: Tensor, rate: int, most_rate: float = 1.0) -> ReadSpeech:
        """The speech tokens of a recording that is converted: as finely as the directory says, and
        at most `most_rate` times 25 per second. Blocks for a fraction of its duration. wave, rate,
        errors: as `read`.
        """
        step = step_within(self._conversion_step, most_rate)
        low = resample(_checked(wave, rate)[None], rate, _NETWORK_RATE)
        return ReadSpeech(self._speech_tokens(low, step), whisper_mel.HOP / step)

    def _speech_tokens(self, wave: Tensor, step: int = whisper_mel.HOP) -> tuple[int, ...]:
        log_mel = whisper_mel.whisper_log_mel(wave, step).numpy()
        tokens = self._tokenizer.run(log_mel, np.array([log_mel.shape[2]], np.int32)).reshape(-1)
        if len(tokens) == 0 or tokens.min() < 0 or tokens.max() >= SPEECH_VOCABULARY:
            output = f"{len(tokens)} tokens" + (f" from {tokens.min()} to {tokens.max()}" if len(tokens) else "")
            raise InternalFault(
                f"{self._generation.speech_tokenizer} returned {output}, "
                f"expected some from 0 to {SPEECH_VOCABULARY - 1}"
            )
        return tuple(tokens.tolist())

    def _speaker_vector(self, wave: Tensor) -> bytes:
        vector = self._speaker_encoder.run(fbank.speaker_features(wave)[None].numpy()).reshape(-1)
        if len(vector) != SPEAKER_DIMENSION:
            raise InternalFault(f"{SPEAKER_ENCODER} returned {len(vector)} values, expected {SPEAKER_DIMENSION}")
        return _bytes(vector)


def _checked(wave: Tensor, rate: int) -> Tensor:
    check_recording(wave, rate)
    # One of the few samples beyond full scale may be so large that its power overflows.
    return wave.clamp(-1.0, 1.0)


def _bytes(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    return np.ascontiguousarray(values, "<f4").tobytes()


_FILES = (
    SPEAKER_ENCODER,
    "CosyVoice-BlankEN/vocab.json",
    "CosyVoice-BlankEN/merges.txt",
    "phonemes/symbols.json",
)


def voice_model(directory: ModelDirectory) -> str:
    """Name shared by all model directories whose voices are interchangeable: 16 hexadecimal digits.
    Voices of another model are meaningless arrays to this one, so each model has its own folder in
    the storage. Reads the files; half a gigabyte of published weights takes about a second.
    """
    generation = generation_of(directory)
    digest = hashlib.sha256()
    if generation.name != UNNAMED_GENERATION:
        digest.update(generation.name.encode())
    for name in (generation.speech_tokenizer, *_FILES):
        path = directory.path / name
        if path.exists():
            with path.open("rb") as file:
                digest.update(name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def has_prompt_networks(directory: ModelDirectory) -> bool:
    """Whether the directory has the two prompt networks."""
    needed = (generation_of(directory).speech_tokenizer, SPEAKER_ENCODER)
    return all((directory.path / name).exists() for name in needed)
