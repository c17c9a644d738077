"""`python -m tools.quality.aligned_words [--sentences N] [--list FILE] [--model DIR] [--json]`: how
exact the word times are that the server finds in the sound of a model without an alignment table.

Speaks N lines with each voice of a model that has a table, through the running services, aligns
their sound as the orchestrator does for a model without one, and compares both times of each word;
where a line comes out of silence, or ends in it, also the first word's beginning and the last one's
end with the sound's. Each sound is then aligned with the words of another line, which should be
refused.

Exit status: 0 measured, 1 it failed, 2 bad arguments.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cosyserve.audio.encoding import from_pcm
from cosyserve.client import AsyncClient
from cosyserve.client.types import WordTime
from cosyserve.commands.terminal.arguments import add_json, add_model, model_directory
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.spec import SAMPLE_RATE
from services.orchestrator.aligning.acoustic import AcousticModel
from services.orchestrator.aligning.untimed import Untimed
from tools.quality.command import ending
from tools.quality.recordings.recording import Sentence, read_sentences, spread
from tools.quality.word_times import SEED, Exactness, as_table, exactness_of, sounding


@dataclass(frozen=True)
class Spoken:
    """A line as it was spoken: mono s16le at 24 kHz, and the times that the table gave."""

    pcm: bytes
    words: list[WordTime]


@dataclass(frozen=True)
class Result:
    """lines: spoken; refused: of them, not aligned. wrong_lines, wrong_refused: the same for a
    sound with the words of another line. processor_seconds: of alignment, for a second of sound.
    """

    borders: list[Exactness]
    lines: int
    refused: int
    wrong_lines: int
    wrong_refused: int
    processor_seconds: float


def compared(spoken: Sequence[Spoken]) -> Result:
    """Align all lines. Raises ValueError when none is aligned."""
    model = AcousticModel()
    errors: dict[str, list[float]] = {"start": [], "end": [], "sound's start": [], "sound's end": []}
    refused, processor = 0, 0.0
    for line in spoken:
        began = time.process_time()
        try:
            spans = model.align([word.text for word in line.words], line.pcm)
        except Untimed:
            refused += 1
            continue
        finally:
            processor += time.process_time() - began
        errors["start"] += [span[0] - word.start for span, word in zip(spans, line.words, strict=True)]
        errors["end"] += [span[1] - word.end for span, word in zip(spans, line.words, strict=True)]
        begin, end = sounding(from_pcm(line.pcm), SAMPLE_RATE)
        if begin is not None:
            errors["sound's start"].append(spans[0][0] - begin)
        if end is not None:
            errors["sound's end"].append(spans[-1][1] - end)
    seconds = sum(len(line.pcm) / 2 / SAMPLE_RATE for line in spoken)
    wrong, wrong_refused = _crossed(model, spoken)
    borders = [exactness_of(border, sizes) for border, sizes in errors.items() if sizes]
    if not borders:
        raise ValueError("no line was aligned with its own words")
    return Result(borders, len(spoken), refused, wrong, wrong_refused, round(processor / seconds, 4))


def _crossed(model: AcousticModel, spoken: Sequence[Spoken]) -> tuple[int, int]:
    """Sounds with the words of the line that is next in length, and how many are refused."""
    by_length = sorted(spoken, key=lambda line: len(line.pcm))
    tried = refused = 0
    for line, other in zip(by_length, by_length[1:] + by_length[:1], strict=True):
        words = [word.text for word in other.words]
        if [word.lower() for word in words] == [word.text.lower() for word in line.words]:
            continue
        tried += 1
        try:
            model.align(words, line.pcm)
        except Untimed:
            refused += 1
    return tried, refused


async def speak(model: Path, sentences: Sequence[Sentence]) -> list[Spoken]:
    """All lines with all voices. Raises ValueError when the model reports no times."""
    spoken: list[Spoken] = []
    async with local_deployment(model) as stack, AsyncClient(stack.address) as client:
        for voice in await client.voices():
            for sentence in sentences:
                speech = client.synthesize(sentence.text, voice=voice.id, seed=SEED, onset="natural")
                spoken.append(Spoken(await speech.read(), speech.words))
    if not any(line.words for line in spoken):
        raise ValueError(f"{model} gives no word times to compare with")
    return spoken


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.quality.aligned_words", description="Word times found in sound against a table's."
    )
    add_model(parser)
    parser.add_argument(
        "--sentences", type=int, default=200, help="lines of the list, evenly spread (default 200: all of the held-out)"
    )
    parser.add_argument("--list", type=Path, help="a file with a line for each text (default: the held-out sentences)")
    add_json(parser)
    options = parser.parse_args(arguments)
    with ending(parser, bad_arguments=(ValueError, OSError)):
        sentences = spread(read_sentences(options.list) if options.list else read_sentences(), options.sentences)
    with ending(parser):
        result = compared(asyncio.run(speak(model_directory(options.model), sentences)))
    if options.json:
        print(json.dumps(asdict(result), indent=1))
        return
    print(as_table(result.borders))
    print(
        f"{result.refused} of {result.lines} lines not aligned; with the words of another line "
        f"{result.wrong_refused} of {result.wrong_lines}; {result.processor_seconds} processor seconds for one of sound"
    )


if __name__ == "__main__":
    main()
