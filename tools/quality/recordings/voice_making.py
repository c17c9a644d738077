"""Voices made of recordings: the recordings read, the voices made of them, a model directory that
has them, and their prompts as the vocoder renders them.
"""

import sys
import wave
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.audio.encoding import from_pcm
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, SAMPLE_RATE
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.prompts.prompt_reader import PromptReader
from services.frontend.voices.speaker_file import FILE, entry_of, read_voices
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import Voice
from services.token2wav.vocoder.loading import load_vocoder
from tools.quality.recordings.recording import Recording, Samples, Sentence

SECONDS = 5.0
REACH_SECONDS = 1.0
"""How far from the wanted length a recording may be cut."""
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class RecordedSpeaker:
    """A recorded speaker. prompt: the part of `whole` from which the voice is made, with its
    transcript.
    """

    name: str
    whole: Recording
    prompt: Recording


def read_originals(
    paths: Sequence[Path], texts: Sequence[str] | None, seconds: float, hear: Callable[[Recording], str]
) -> list[RecordedSpeaker]:
    """The recordings, each with the transcript given, else with what `hear` understands of the part
    that is used.

    Raises ValueError for files of other formats or of one name, for a number of texts that is not
    that of the recordings, and for a text of a recording of which only a part is used.
    """
    if texts is not None and len(texts) != len(paths):
        raise ValueError(f"{len(texts)} texts for {len(paths)} recordings")
    if len({path.stem for path in paths}) < len(paths):
        raise ValueError("two recordings have the same name")
    originals = []
    for place, path in enumerate(paths):
        whole = _read(path, place + 1)
        part = Recording(whole.sentence, opening(whole.samples, whole.sample_rate, seconds), whole.sample_rate)
        if texts is not None and len(part.samples) < len(whole.samples):
            limit = seconds + REACH_SECONDS
            raise ValueError(
                f"{path} lasts {whole.seconds:.1f} s, of which a part is used: with its text it may last {limit:g} s "
                "at most"
            )
        text = hear(part) if texts is None else texts[place]
        print(f"{path.stem}: {part.seconds:.2f} s of {whole.seconds:.2f} s: {text}", file=sys.stderr)
        originals.append(
            RecordedSpeaker(path.stem, whole, Recording(Sentence(place + 1, text), part.samples, part.sample_rate))
        )
    return originals


def opening(samples: Samples, sample_rate: int, seconds: float) -> Samples:
    """About the first `seconds` of mono `samples`: cut in the middle of the quietest 0.1 s that
    lies within a second of there.

    All of them when they are not longer than a second more than that.
    """
    if len(samples) <= (seconds + REACH_SECONDS) * sample_rate:
        return samples
    first = max(0, round((seconds - REACH_SECONDS) * sample_rate))
    around = samples[first : round((seconds + REACH_SECONDS) * sample_rate)]
    length = round(_PAUSE_SECONDS * sample_rate)
    power = np.convolve(np.square(around, dtype=np.float64), np.ones(length), "valid")
    return samples[: first + int(power.argmin()) + length // 2]


def make_voices(directory: ModelDirectory, originals: Sequence[RecordedSpeaker]) -> tuple[list[Voice], list[Voice]]:
    """The model's own voices, and the new ones as the frontend makes them, their transcripts
    normalised as a whole.

    Raises ValueError for the name of a voice that the model has and for a model without voices,
    InvalidRequest and ModelError as `PromptReader` does.
    """
    tokenizer = read_tokenizer(directory)
    presets = read_voices(directory, tokenizer)
    if not presets:
        raise ValueError(f"{directory.path} has no voice to compare a new one with")
    if taken := {voice.id for voice in presets} & {original.name for original in originals}:
        raise ValueError(f"the model has a voice {', '.join(sorted(taken))} already; give the recording another name")
    analyzer = Analyzer(Normalizer(WeText()), tokenizer)
    reader, system = PromptReader(directory), SystemPart(generation_of(directory), tokenizer)
    voices = []
    for original in originals:
        prompt = original.prompt
        ids = system.prefixed(tuple(tokenizer.encode(analyzer.normalise(prompt.sentence.text))))
        voices.append(reader.read(original.name, torch.from_numpy(prompt.samples), prompt.sample_rate, ids))
    return presets, voices


def with_voices(model: Path, voices: Iterable[Voice], folder: Path) -> Path:
    """Fill the empty `folder` with links to everything in `model`, and a `spk2info.pt` that holds
    the voices too; `folder` again.

    A new voice takes the place of one of the same id.
    """
    known: dict[str, dict[str, Tensor]] = {}
    for path in model.resolve().iterdir():
        if path.name == FILE:
            known = torch.load(path, map_location="cpu", weights_only=True)
        else:
            (folder / path.name).symlink_to(path)
    torch.save(known | {voice.id: entry_of(voice) for voice in voices}, folder / FILE)
    return folder


@torch.inference_mode()
def vocoded_prompts(directory: ModelDirectory, voices: Iterable[Voice]) -> dict[str, Recording]:
    """By voice; those that have a prompt. Raises ModelError for a vocoder that cannot be read."""
    vocoder = load_vocoder(directory, torch.device("cpu"))
    prompts = {}
    for number, voice in enumerate(voices, 1):
        if voice.prompt_mel:
            mel = torch.from_numpy(np.frombuffer(voice.prompt_mel, "<f4").reshape(-1, MEL_BINS).T.astype(np.float32))
            samples = vocoder.offline(mel, seed=0, sentence=0).numpy()
            prompts[voice.id] = Recording(Sentence(number, voice.id), samples, SAMPLE_RATE)
    return prompts


def _read(path: Path, number: int) -> Recording:
    """A WAV file of 16 bit, its channels averaged."""
    try:
        with wave.open(str(path)) as file:
            if file.getsampwidth() != 2:
                raise ValueError(f"{path} has {8 * file.getsampwidth()} bits a sample, must have 16")
            samples = (
                from_pcm(file.readframes(file.getnframes()))
                .reshape(-1, file.getnchannels())
                .mean(axis=1, dtype=np.float32)
            )
            return Recording(Sentence(number, path.stem), samples, file.getframerate())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is no WAV file of plain samples: {error}") from error
