"""`python -m tools.quality.word_times [--sentences N] [--model DIR] [--by-token] [--json]`: how
exact the word times of the server are.

Speaks N sentences of the held-out list with each voice through the running services and compares
when each word begins and ends with what Whisper hears (its cross-attention's alignment, which is
itself good to a few hundredths of a second at best). Words are compared where both wrote the same
word. Where a sentence comes out of silence, or ends in it, the first word's beginning and the last
one's end are compared with those of the sound too.

Exit status: 0 measured, 1 it failed, 2 bad arguments.
"""

import argparse
import asyncio
import difflib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from cosyserve.audio.encoding import from_pcm
from cosyserve.client import AsyncClient
from cosyserve.client.types import WordTime
from cosyserve.commands.terminal.arguments import add_json, add_model, model_directory
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.spec import SAMPLE_RATE
from tools.quality.command import ending
from tools.quality.recordings.recording import Recording, Samples, Sentence, read_sentences, spread
from tools.quality.words.recognition import HeardWord, Recogniser

SEED = 1
LOUD_DECIBELS = -45.0
"""Of full scale, root mean square of a frame: speech is above it, what comes before the first word
below.
"""
_FRAME_SECONDS = 0.010
_SILENT_FRAMES = 4
"""Fewer quiet frames before the first loud one do not count as silence: they say nothing about when
the sound began.
"""


@dataclass(frozen=True)
class Exactness:
    """Seconds between the server's times and another measure's. bias: mean of server less the
    other. mean, median, ninety_percent: of absolute differences. spread: as ninety_percent with the
    bias taken off, since a recogniser may be late as a whole."""

    border: str
    words: int
    bias: float
    mean: float
    median: float
    ninety_percent: float
    spread: float


@dataclass
class Compared:
    """What the words of all sentences came to so far."""

    pairs: list[tuple[WordTime, HeardWord]] = field(default_factory=list)
    """The server's and the recogniser's."""
    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    """Seconds of the first word's beginning, the last one's end, less those of the sound."""

    def add(
        self, reported: Sequence[WordTime], heard: Sequence[HeardWord], sound: tuple[float | None, float | None]
    ) -> None:
        """One sentence; `sound` as `sounding` gives it."""
        self.pairs += same_words(reported, heard)
        begin, end = sound
        if reported and begin is not None:
            self.begins.append(reported[0].start - begin)
        if reported and end is not None:
            self.ends.append(reported[-1].end - end)

    def exactness(self) -> list[Exactness]:
        """Against the recogniser, then against the sound. Raises ValueError when there are no words
        to compare.
        """
        if not self.pairs:
            raise ValueError("no word that the server gave a time for was heard")
        against_sound = [("sound's start", self.begins), ("sound's end", self.ends)]
        return [
            exactness_of("start", [reported.start - heard.start for reported, heard in self.pairs]),
            exactness_of("end", [reported.end - heard.end for reported, heard in self.pairs]),
            *(exactness_of(border, errors) for border, errors in against_sound if errors),
        ]


def same_words(reported: Sequence[WordTime], heard: Sequence[HeardWord]) -> list[tuple[WordTime, HeardWord]]:
    """Words that both have, in the order in which both have them."""
    ours, theirs = ([_letters(word.text) for word in words] for words in (reported, heard))
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return [
        (reported[block.a + at], heard[block.b + at])
        for block in blocks
        for at in range(block.size)
        if ours[block.a + at]
    ]


def sounding(samples: Samples, sample_rate: int) -> tuple[float | None, float | None]:
    """Seconds from the beginning of mono `samples` to the first loud frame of 10 ms, and to the end
    of the last one; None where the recording has no 40 ms of silence there, or nothing loud at all.
    """
    length = round(_FRAME_SECONDS * sample_rate)
    frames = samples[: len(samples) // length * length].reshape(-1, length).astype(np.float64)
    loud = np.flatnonzero(np.sqrt(np.square(frames).mean(axis=1)) >= 10 ** (LOUD_DECIBELS / 20))
    if not len(loud):
        return None, None
    first, behind = int(loud[0]), int(loud[-1]) + 1
    begin = first * length / sample_rate if first >= _SILENT_FRAMES else None
    return begin, behind * length / sample_rate if len(frames) - behind >= _SILENT_FRAMES else None


def exactness_of(border: str, errors: Sequence[float]) -> Exactness:
    """errors: seconds of our time less the other's, at least one."""
    sizes = np.abs(errors)
    return Exactness(
        border,
        len(errors),
        round(float(np.mean(errors)), 3),
        round(float(np.mean(sizes)), 3),
        round(float(np.median(sizes)), 3),
        round(float(np.quantile(sizes, 0.9)), 3),
        round(float(np.quantile(np.abs(np.asarray(errors) - np.mean(errors)), 0.9)), 3),
    )


def as_table(borders: Sequence[Exactness]) -> str:
    """For people."""
    lines = [f"{'border':<14}{'words':>7}{'bias s':>9}{'mean s':>9}{'median s':>10}{'90 % s':>9}{'spread s':>10}"]
    lines += [
        f"{each.border:<14}{each.words:>7}{each.bias:>9.3f}{each.mean:>9.3f}{each.median:>10.3f}"
        f"{each.ninety_percent:>9.3f}{each.spread:>10.3f}"
        for each in borders
    ]
    return "\n".join(lines)


def _letters(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())


async def measure(model: Path, sentences: list[Sentence], *, by_token: bool) -> list[Exactness]:
    """Over all sentences and voices. by_token: spoken while they are being written. Raises
    ValueError when the model reports no times.
    """
    compared = Compared()
    async with local_deployment(model) as stack, AsyncClient(stack.address) as client:
        recogniser = Recogniser()
        for voice in await client.voices():
            for sentence in sentences:
                recording, words = await _spoken(client, sentence, voice.id, by_token=by_token)
                heard = await asyncio.to_thread(recogniser.words_of, recording)
                compared.add(words, heard, sounding(recording.samples, recording.sample_rate))
    return compared.exactness()


async def _spoken(
    client: AsyncClient, sentence: Sentence, voice: str, *, by_token: bool
) -> tuple[Recording, list[WordTime]]:
    speech = client.synthesize(sentence.text, voice=voice, seed=SEED, onset="natural")
    if not by_token:
        return Recording(sentence, from_pcm(await speech.read()), SAMPLE_RATE), speech.words
    async with client.streaming_synthesize(voice=voice, seed=SEED, mode="tokens", onset="natural") as written:
        await written.write(sentence.text)
        await written.finish()
        return Recording(sentence, from_pcm(await written.read()), SAMPLE_RATE), written.words


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.quality.word_times", description="Word times against a recogniser's."
    )
    add_model(parser)
    parser.add_argument(
        "--sentences", type=int, default=50, help="sentences of the held-out list, evenly spread (default 50)"
    )
    parser.add_argument("--by-token", action="store_true", help="speak them while they are being written (MODE_TOKENS)")
    add_json(parser)
    options = parser.parse_args(arguments)
    with ending(parser, bad_arguments=(ValueError,)):
        sentences = spread(read_sentences(), options.sentences)
    with ending(parser):
        result = asyncio.run(measure(model_directory(options.model), sentences, by_token=options.by_token))
    if options.json:
        print(json.dumps([asdict(each) for each in result], indent=1))
    else:
        print(as_table(result))


if __name__ == "__main__":
    main()
