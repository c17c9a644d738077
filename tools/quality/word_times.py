"""`python -m tools.quality.word_times [--sentences N] [--model DIR] [--json]`: how exact the word times of the server are.

Speaks N sentences of the held-out list with each voice through the running services and compares when each word begins and ends with what
Whisper hears (its cross-attention's alignment, which is itself good to a few hundredths of a second at best). Words are compared where
both wrote the same word.
"""

import argparse
import asyncio
import difflib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cosyserve.audio import from_pcm
from cosyserve.client import Client
from cosyserve.errors import CosyserveError
from cosyserve.spec import SAMPLE_RATE
from cosyserve.supervision.stack import running_stack
from cosyserve.utterance import WordTime
from tools.quality.recognise import HeardWord, Recogniser
from tools.quality.recording import Recording
from tools.quality.sentences import Sentence, read_sentences, spread

SEED = 1


@dataclass(frozen=True)
class Exactness:
    """Seconds between the server's times and the recogniser's. bias: mean of server less recogniser. median, ninety_percent: of absolute
    differences. spread: as ninety_percent with the bias taken off, since the recogniser may be late as a whole."""

    border: str
    words: int
    bias: float
    median: float
    ninety_percent: float
    spread: float


def compare(pairs: Sequence[tuple[WordTime, HeardWord]]) -> list[Exactness]:
    """For the beginnings and the ends of the same words."""
    return [
        _exactness("start", [told.start - heard.start for told, heard in pairs]),
        _exactness("end", [told.end - heard.end for told, heard in pairs]),
    ]


def same_words(told: Sequence[WordTime], heard: Sequence[HeardWord]) -> list[tuple[WordTime, HeardWord]]:
    """Words that both have, in the order in which both have them."""
    ours, theirs = ([_letters(word.text) for word in words] for words in (told, heard))
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return [(told[block.a + at], heard[block.b + at]) for block in blocks for at in range(block.size) if ours[block.a + at]]


def _exactness(border: str, errors: Sequence[float]) -> Exactness:
    sizes = np.abs(errors)
    return Exactness(
        border,
        len(errors),
        round(float(np.mean(errors)), 3),
        round(float(np.median(sizes)), 3),
        round(float(np.quantile(sizes, 0.9)), 3),
        round(float(np.quantile(np.abs(np.asarray(errors) - np.mean(errors)), 0.9)), 3),
    )


def _letters(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())


async def measure(model: Path, sentences: list[Sentence]) -> list[Exactness]:
    """Over all sentences and voices. Raises ValueError when the model tells no times."""
    recogniser, pairs = Recogniser(), []
    async with running_stack(model) as stack, Client(stack.address) as client:
        for voice in await client.voices():
            for sentence in sentences:
                speech = client.synthesize(sentence.text, voice=voice.id, seed=SEED)
                recording = Recording(sentence, from_pcm(await speech.read()), SAMPLE_RATE)
                pairs += same_words(speech.words, await asyncio.to_thread(recogniser.words_of, recording))
    if not pairs:
        raise ValueError(f"{model} gives no word times")
    return compare(pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.quality.word_times", description="Word times against a recogniser's.")
    parser.add_argument("--model", type=Path, default=Path("models/demo"), help="model directory (default: models/demo)")
    parser.add_argument("--sentences", type=int, default=50, help="sentences of the held-out list, evenly spread (default 50)")
    parser.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    options = parser.parse_args(arguments)
    try:
        found = asyncio.run(measure(options.model, spread(read_sentences(), options.sentences)))
    except (CosyserveError, ValueError) as error:
        print(error, file=sys.stderr)
        return 3
    if options.json:
        print(json.dumps([asdict(each) for each in found], indent=1))
    else:
        print(f"{'border':<8}{'words':>7}{'bias s':>9}{'median s':>10}{'90 % s':>9}{'spread s':>10}")
        for each in found:
            print(f"{each.border:<8}{each.words:>7}{each.bias:>9.3f}{each.median:>10.3f}{each.ninety_percent:>9.3f}{each.spread:>10.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
