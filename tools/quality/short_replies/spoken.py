"""Where the replies come from, and what the recognisers understand of them."""

import contextlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cosyserve.audio.encoding import from_pcm
from cosyserve.client import AsyncClient
from cosyserve.client.types import WordTime
from cosyserve.errors import SpeechFault
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLE_RATE
from tools.quality.recordings.collect import client_of, voices_of
from tools.quality.recordings.collect import from_folder as recordings_of
from tools.quality.recordings.recording import Recording, Sentence, file_name, read_recordings
from tools.quality.recordings.voice_making import SECONDS, make_voices, read_originals, with_voices
from tools.quality.short_replies.report import RepliesQuality, judged
from tools.quality.words.recognition import Recogniser, base_weights

Ear = Callable[[Recording], str]
_Say = Callable[[AsyncClient, Sentence, str, int], Awaitable[tuple[Recording, list[WordTime]]]]


@dataclass(frozen=True)
class SpokenReplies:
    """One voice with one seed. words: of each recording, in order; empty lists where no times are
    reported.
    """

    voice: str
    seed: int
    recordings: list[Recording] = field(default_factory=list)
    words: list[list[WordTime]] = field(default_factory=list)


async def spoken(
    model: Path, server: str | None, voices: Sequence[str] | None, replies: Sequence[Sentence], seeds: Sequence[int]
) -> list[SpokenReplies]:
    """Each reply in one request, by each voice with each seed. Raises as `client_of` and
    `voices_of` do.
    """

    async def say(client: AsyncClient, reply: Sentence, voice: str, seed: int) -> tuple[Recording, list[WordTime]]:
        speech = client.synthesize(reply.text, voice=voice, seed=seed)
        return Recording(reply, from_pcm(await speech.read()), SAMPLE_RATE), speech.words

    return await _each(model, server, voices, replies, seeds, say)


async def converted(
    model: Path,
    server: str | None,
    voices: Sequence[str] | None,
    replies: Sequence[Sentence],
    seeds: Sequence[int],
    folder: Path,
) -> list[SpokenReplies]:
    """Recordings of the replies, said by each voice. Raises ValueError for a folder that has none
    of them.
    """
    there = [reply for reply in replies if (folder / file_name(reply)).is_file()]
    if not there:
        raise ValueError(f"{folder} has no recording of the list: the first would be {file_name(replies[0])}")

    async def say(client: AsyncClient, reply: Sentence, voice: str, seed: int) -> tuple[Recording, list[WordTime]]:
        speech = client.convert_voice((folder / file_name(reply)).read_bytes(), voice=voice, seed=seed)
        return Recording(reply, from_pcm(await speech.read()), SAMPLE_RATE), []

    return await _each(model, server, voices, there, seeds, say)


def from_folder(directory: Path, wanted: Sequence[str] | None, replies: list[Sentence]) -> list[SpokenReplies]:
    """Other recordings of the replies; see `collect.from_folder`."""
    return [
        SpokenReplies(each.voice, 0, each.streamed, [[] for _ in each.streamed])
        for each in recordings_of(directory, wanted, replies)
    ]


def recorded(folder: Path, said: SpokenReplies) -> SpokenReplies:
    """The recordings in `folder`, numbered as the list, of what was said. Raises ValueError where
    one is missing.
    """
    sentences = [recording.sentence for recording in said.recordings]
    if missing := [sentence for sentence in sentences if not (folder / file_name(sentence)).is_file()]:
        raise ValueError(f"{folder} has no recording {file_name(missing[0])}; {len(missing)} are missing")
    return SpokenReplies(folder.name, 0, read_recordings(folder, sentences), [[] for _ in sentences])


def heard(said: Sequence[SpokenReplies], *, one_ear: bool, threads: int) -> list[RepliesQuality]:
    """Listens to everything with Whisper tiny.en, and unless one_ear with base. Raises
    ModuleNotFoundError when the weights of base are not installed."""
    with ears(one_ear=one_ear, threads=threads) as listening:
        return [
            RepliesQuality(
                each.voice,
                each.seed,
                [
                    judged(
                        recording.sentence.number,
                        recording.sentence.text,
                        {ear: hear(recording) for ear, hear in listening.items()},
                        words,
                    )
                    for recording, words in zip(each.recordings, each.words, strict=True)
                ],
            )
            for each in said
        ]


@contextlib.contextmanager
def ears(*, one_ear: bool, threads: int) -> Iterator[dict[str, Ear]]:
    """By name."""
    recognisers: dict[str, Ear] = {"tiny.en": Recogniser(threads).text_of}
    if one_ear:
        yield recognisers
        return
    with base_weights() as weights:
        yield recognisers | {"base": Recogniser(threads, weights).text_of}


@contextlib.contextmanager
def cloning_model(model: Path, recordings: Sequence[Path], threads: int) -> Iterator[tuple[Path, list[str] | None]]:
    """`model`, or with recordings a copy of it that has a voice of each, thrown away behind the
    block; and the new voices' names. Raises as `read_originals` and `make_voices` do.
    """
    if not recordings:
        yield model, None
        return
    recogniser = Recogniser(threads)
    _, voices = make_voices(ModelDirectory(model), read_originals(recordings, None, SECONDS, recogniser.text_of))
    with tempfile.TemporaryDirectory() as folder:
        yield with_voices(model, voices, Path(folder)), [voice.id for voice in voices]


async def _each(
    model: Path,
    server: str | None,
    wanted: Sequence[str] | None,
    replies: Sequence[Sentence],
    seeds: Sequence[int],
    say: _Say,
) -> list[SpokenReplies]:
    async with client_of(model, server) as client:
        voices = await voices_of(client, wanted)
        return [await _by_voice(client, voice, replies, seed, say) for voice in voices for seed in seeds]


async def _by_voice(
    client: AsyncClient, voice: str, replies: Sequence[Sentence], seed: int, say: _Say
) -> SpokenReplies:
    print(f"{voice}: saying {len(replies)} replies, seed {seed}", file=sys.stderr)
    said = SpokenReplies(voice, seed)
    for reply in replies:
        try:
            recording, words = await say(client, reply, voice, seed)
        except SpeechFault as fault:
            # Refused as no speech of the text: nothing of it counts as heard.
            print(f"{voice}, seed {seed}, {reply.number:03d}: {fault.guard}: {fault.message}", file=sys.stderr)
            recording, words = Recording(reply, np.zeros(0, np.float32), SAMPLE_RATE), []
        said.recordings.append(recording)
        said.words.append(words)
    return said
