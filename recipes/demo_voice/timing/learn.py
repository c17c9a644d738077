"""Learn `alignment.npz` from what the finished speech-token model says: no recordings, no labels,
no network.

    python -m recipes.demo_voice.timing.learn WORK [--sentences 600] [--to models/demo]

speaks training sentences of `WORK/text/sentences.tsv` with the voices of `WORK/model` in turn (into
`WORK/timing/said.jsonl`, resumable) and counts: each round aligns every sentence with the table so
far and makes the next table of the counts. The first table comes from cutting each sentence into
equal parts. Viterbi training: Juang and Rabiner, "The segmental K-means algorithm", 1990.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice.model_files import manifest
from services.frontend.tokenizers.phonemes.symbols import PHONES, read_symbols
from services.llm.generation.config import read_config
from services.llm.guards.alignment import DIGITS, FILE, LEVELS, AlignmentTable, digits_of

ROUNDS = 20
PAUSES = ",;:—"
_PRIOR = 0.5
"""Added to each count, so that what was not seen is improbable and not impossible."""


@dataclass(frozen=True)
class Said:
    """One spoken sentence."""

    ids: tuple[int, ...]
    tokens: list[int]


def learn(
    sentences: Sequence[Said], phones: frozenset[int], pauses: frozenset[int], vocabulary: int, rounds: int = ROUNDS
) -> AlignmentTable:
    """phones: text ids that are sounds; pauses: marks. Only they get tokens in the first cut."""
    spoken = [_equal_parts(sentence, phones, pauses) for sentence in sentences]
    table = _table(sentences, spoken, vocabulary)
    for _ in range(rounds):
        spoken = [_counts(sentence, table.starts(sentence.ids, sentence.tokens)) for sentence in sentences]
        table = _table(sentences, spoken, vocabulary)
    return table


def _equal_parts(sentence: Said, phones: frozenset[int], pauses: frozenset[int]) -> NDArray[np.int64]:
    """[tokens]: the place of the text id that says each token. The first and last ids, which are no
    sounds, get one token each, a pause as much as two sounds."""
    places = [
        place
        for place, symbol in enumerate(sentence.ids)
        for _ in range(1 if symbol in phones else 2 * (symbol in pauses))
    ] or [0]
    inner = len(sentence.tokens) - 2
    said = [places[at * len(places) // inner] for at in range(inner)] if inner > 0 else []
    return np.asarray([0, *said, len(sentence.ids) - 1][: len(sentence.tokens)])


def _counts(sentence: Said, starts: list[int] | None) -> NDArray[np.int64]:
    """[tokens]: the place of the text id that says each token; empty when there is no path."""
    if starts is None:
        return np.zeros(0, np.int64)
    return np.searchsorted(np.asarray(starts), np.arange(len(sentence.tokens)), side="right") - 1


def _table(sentences: Sequence[Said], spoken: Sequence[NDArray[np.int64]], vocabulary: int) -> AlignmentTable:
    digits = np.full((vocabulary, DIGITS, LEVELS), _PRIOR)
    tokens, visits, chances = (np.full(vocabulary, _PRIOR) for _ in range(3))
    for sentence, places in zip(sentences, spoken, strict=True):
        if not len(places):
            continue
        ids = np.asarray(sentence.ids)
        of_token, seen = ids[places], digits_of(np.asarray(sentence.tokens))
        for digit in range(DIGITS):
            np.add.at(digits[:, digit], (of_token, seen[:, digit]), 1.0)
        np.add.at(tokens, of_token, 1.0)
        np.add.at(visits, ids[np.unique(places)], 1.0)
        np.add.at(chances, ids, 1.0)
    stay = np.clip(1.0 - visits / (tokens + _PRIOR), 0.02, 0.98)
    said = np.clip(visits / (chances + _PRIOR), 0.02, 0.98)
    return AlignmentTable(
        digits=np.log(digits / digits.sum(axis=2, keepdims=True)).astype(np.float32),
        stay=np.log(stay).astype(np.float32),
        leave=(np.log(1.0 - stay) + np.log(said)).astype(np.float32),
        skip=np.log(1.0 - said).astype(np.float32),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.timing.learn", description="Learn the table of word timings."
    )
    parser.add_argument("work", type=Path, help="the recipe's folder")
    parser.add_argument("--sentences", type=int, default=600, help="training sentences to speak (default 600)")
    parser.add_argument("--to", type=Path, help="model directory that gets the table too, with its manifest")
    options = parser.parse_args(arguments)
    from recipes.demo_voice.timing.speak import speak

    model = options.work / "model"
    symbols = read_symbols(model / "phonemes/symbols.json")
    said = [Said(tuple(ids), tokens) for ids, tokens in speak(options.work, options.sentences)]
    phones, pauses = (frozenset(symbols[symbol] for symbol in group) for group in (PHONES, PAUSES))
    table = learn(said, phones, pauses, read_config(ModelDirectory(model)).text_vocabulary)
    np.savez_compressed(model / FILE, digits=table.digits, stay=table.stay, leave=table.leave, skip=table.skip)
    print(
        f"{model / FILE}: learnt from {len(said)} sentences, {sum(len(each.tokens) for each in said) / 25:.0f} s of "
        "speech"
    )
    if options.to is not None:
        shutil.copyfile(model / FILE, options.to / FILE)
        manifest.write(options.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
