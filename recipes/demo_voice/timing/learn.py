"""Learn `alignment.npz` from what the finished speech-token model says: no recordings, no labels,
no network.

    python -m recipes.demo_voice.timing.learn WORK [--sentences 600] [--to models/demo]

speaks training sentences of `WORK/text/sentences.tsv` with the voices of `WORK/model` in turn (into
`WORK/timing/said.jsonl`, resumable) and counts: each round aligns every sentence with the table so
far and makes the next table of the counts. The first table comes from cutting each sentence into
equal parts. Viterbi training: Juang and Rabiner, "The segmental K-means algorithm", 1990.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice.model_files import manifest
from recipes.demo_voice.training import commands
from recipes.demo_voice.training.speech import read_sentences
from services.frontend.loading import read_tokenizer
from services.frontend.tokenizers.phonemes.symbols import PHONES, read_symbols
from services.frontend.voices.speaker_file import read_voices
from services.llm.backends.torch_backend import TorchBackend
from services.llm.generation.config import read_config
from services.llm.generation.request import FinishReason, Generation, Prompt, Sampling
from services.llm.guards.alignment import DIGITS, FILE, LEVELS, AlignmentTable, digits_of
from services.llm.settings import LlmSettings

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


def speak(work: Path, count: int) -> list[Said]:
    """The first `count` training sentences that come to an end;
    `WORK/timing/said.jsonl` keeps them.
    """
    table = work / "timing" / "said.jsonl"
    table.parent.mkdir(parents=True, exist_ok=True)
    texts = [each.text for each in read_sentences(work / "text" / "sentences.tsv") if each.split == "train"][:count]
    # Weights, and in the yaml how tokens are chosen.
    speaker = (work / "model" / name for name in ("llm.pt", "cosyvoice2.yaml"))
    if table.exists() and any(table.stat().st_mtime < file.stat().st_mtime for file in speaker):
        # What another model said.
        table.unlink()
    done = len(table.read_text(encoding="utf-8").splitlines()) if table.exists() else 0
    asyncio.run(_speak_rest(work / "model", texts, done, table))
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()[:count]]
    return [Said(tuple(row["ids"]), row["tokens"]) for row in rows if row["ended"]]


async def _speak_rest(model: Path, texts: list[str], done: int, table: Path) -> None:
    backend = TorchBackend.load(LlmSettings(listen="127.0.0.1:0", model=model))
    try:
        with table.open("a", encoding="utf-8") as out:
            async for row in _rows(backend, ModelDirectory(model), texts, done):
                print(json.dumps(row), file=out, flush=True)
    finally:
        await backend.close()


async def _rows(
    backend: TorchBackend, directory: ModelDirectory, texts: list[str], done: int
) -> AsyncIterator[dict[str, object]]:
    tokenizer = read_tokenizer(directory)
    voices = read_voices(directory, tokenizer)
    for number in range(done, len(texts)):
        voice = voices[number % len(voices)]
        prompt = Prompt(tuple(voice.prompt_text_ids), tuple(voice.prompt_speech_tokens))
        ids = tokenizer.encode(texts[number])
        hops = [
            hop
            async for hop in backend.generate(
                Generation(prompt=prompt, text=tuple(ids), sampling=Sampling(seed=number))
            )
        ]
        outcome = hops[-1].outcome
        ended = outcome is not None and outcome.reason is FinishReason.END_OF_SPEECH
        yield {"ids": ids, "tokens": [token for hop in hops for token in hop.tokens], "ended": ended}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = commands.stage("timing.learn", __doc__, "work folder with the finished model in it")
    parser.add_argument("--sentences", type=int, default=600, help="training sentences to speak (default 600)")
    parser.add_argument("--to", type=Path, help="model directory that gets the table too, with its manifest")
    options = parser.parse_args(arguments)
    model = options.work / "model"
    symbols = read_symbols(model / "phonemes/symbols.json")
    said = speak(options.work, options.sentences)
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


if __name__ == "__main__":
    main()
