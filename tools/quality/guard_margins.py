"""`python -m tools.quality.guard_margins [--model DIR] [--list FILE] [--sentences N] [--seeds N]
[--json]`: how far the thresholds of the guards of speech tokens are from ordinary speech.

Speaks N texts of a list (default: the held-out sentences) with each voice of a model directory, in
this process and as speech tokens only, and says the very words of each voice's prompt with several
seeds: the likeliest cause of a false alarm of `PROMPT_SPOKEN`. Where the model gives word times,
the sentences that come nearest to `LEFT_OUT` and `REPEATED` are named.

Exit status: 0 measured, 1 it failed, 2 bad arguments.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from cosyserve.commands.terminal.arguments import add_json, add_model, model_directory
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import Sentence as AnalyzedSentence
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.sentence_splitter import split_mode
from services.frontend.voices.speaker_file import read_voices
from services.llm.backends.backend import Backend
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import FinishReason, Generation, Prompt, Sampling
from services.llm.guards.alignment import AlignmentTable
from services.llm.guards.repetition import LARGEST_GAIN, step_back_gain
from services.llm.guards.token_guards import DISTINCT_TOKENS, EQUAL_TOKENS, RUN_TOKENS
from services.llm.loading import load_backend
from services.llm.settings import LlmSettings
from services.orchestrator.speech.utterance import SpokenWord
from services.orchestrator.speech.word_alignment import FEWEST_LETTERS, fewest_tokens, tokens_of
from tools.quality.command import ending
from tools.quality.recordings.recording import HELD_OUT, Sentence, read_sentences, spread


@dataclass(frozen=True)
class SpokenTokens:
    """One sentence. text_ids: how many."""

    text_ids: int
    tokens: list[int]
    ended: bool
    """Whether the model ended it, and not its longest length."""


@dataclass(frozen=True)
class Margins:
    """Tokens per text id are those of the sentences that came to an end. repeated: the most tokens
    of a second that equal the prompt's.
    """

    sentences: int
    did_not_end: int
    fewest_per_text_id: float
    most_per_text_id: float
    repeated: int
    prompts_said_again: int
    repeated_by_the_prompts_words: int
    fewest_spare_tokens: int | None = None
    """Of a word, beyond what LEFT_OUT asks for; None where words have no times."""
    largest_gain: float | None = None
    """Of a step back, in nats."""


@dataclass(frozen=True)
class WordMargin:
    """Of one sentence. spare: tokens that its shortest word has more than it needs; below 0 it
    counts as left out. gain: of the best step back in the text, in nats."""

    text: str
    spare: int
    gain: float


def repeated(tokens: Sequence[int], prompt: Sequence[int]) -> int:
    """The most tokens of a second of `tokens` that equal those of any second of `prompt` at the
    same distance; a second with so few different tokens that the guard passes it over does not
    count."""
    windows = [tokens[at : at + RUN_TOKENS] for at in range(len(tokens) - RUN_TOKENS + 1)]
    varied = np.asarray([len(set(window)) >= DISTINCT_TOKENS for window in windows], bool)
    if not varied.any() or len(prompt) < RUN_TOKENS:
        return 0
    equal = np.asarray(tokens)[:, None] == np.asarray(prompt)[None, :]
    most = 0
    for offset in range(RUN_TOKENS - len(tokens), len(prompt) - RUN_TOKENS + 1):
        hits, first = np.diagonal(equal, offset), max(-offset, 0)
        sums = np.concatenate(([0], np.cumsum(hits)))
        counts = sums[RUN_TOKENS:] - sums[:-RUN_TOKENS]
        most = max(most, int((counts * varied[first : first + len(counts)]).max()))
    return most


def word_margin(table: AlignmentTable, sentence: AnalyzedSentence, tokens: list[int]) -> WordMargin | None:
    """None for a sentence that cannot be aligned or has no words."""
    starts = table.starts(sentence.token_ids, tokens)
    words = [SpokenWord(*word) for word in sentence.words if sum(map(str.isalpha, word[0])) >= FEWEST_LETTERS]
    if starts is None or not words:
        return None
    borders = (*starts, len(tokens))
    spare = min(tokens_of(word, borders) - fewest_tokens(word) for word in words)
    return WordMargin(sentence.text, spare, step_back_gain(table, sentence.token_ids, tokens))


def extremes(margins: Sequence[WordMargin]) -> tuple[int, float]:
    """The least to spare and the largest gain. Raises ValueError when there are none."""
    if not margins:
        raise ValueError("no sentence has words with times")
    return min(each.spare for each in margins), round(max(each.gain for each in margins), 1)


def margins(said: Sequence[tuple[SpokenTokens, Prompt]], said_again: Sequence[tuple[SpokenTokens, Prompt]]) -> Margins:
    """said: held-out sentences; said_again: the words of the prompts, each with its prompt.
    Raises ValueError when no sentence ended.
    """
    ratios = [len(spoken.tokens) / spoken.text_ids for spoken, _ in said if spoken.ended]
    if not ratios:
        raise ValueError(f"none of {len(said)} sentences came to an end")
    return Margins(
        sentences=len(said),
        did_not_end=sum(not spoken.ended for spoken, _ in said),
        fewest_per_text_id=round(min(ratios), 2),
        most_per_text_id=round(max(ratios), 2),
        repeated=max(repeated(spoken.tokens, prompt.speech_tokens) for spoken, prompt in said),
        prompts_said_again=len(said_again),
        repeated_by_the_prompts_words=max(
            (repeated(spoken.tokens, prompt.speech_tokens) for spoken, prompt in said_again), default=0
        ),
    )


async def measure(
    model: Path, sentences: Sequence[Sentence], seeds: int
) -> tuple[Margins, LengthBounds, list[tuple[str, WordMargin]]]:
    """The margins, the bounds that they are margins to, and those of the words, sentence by
    sentence and each with its voice.

    Raises ModelError for a directory that cannot speak, ValueError without voices.
    """
    directory = ModelDirectory(model)
    tokenizer = read_tokenizer(directory)
    voices = read_voices(directory, tokenizer)
    prompts = [Prompt(voice.prompt_text_ids, voice.prompt_speech_tokens) for voice in voices]
    if not prompts:
        raise ValueError(f"{model} has no voices of its own")
    analyzer = Analyzer(Normalizer(WeText()), tokenizer, split=split_mode(directory))
    texts = [part for sentence in sentences for part in analyzer.sentences(sentence.text)]
    backend = load_backend(LlmSettings(listen="127.0.0.1:0", model=model))
    try:
        said = [
            (await _spoken(backend, prompt, text.token_ids, seed), prompt)
            for prompt in prompts
            for seed, text in enumerate(texts)
        ]
        words = _word_margins(
            backend, [voice.id for voice in voices for _ in texts], texts * len(voices), [spoken for spoken, _ in said]
        )
        transcribed = [prompt for prompt in prompts if prompt.text_ids]
        said_again = [
            (await _spoken(backend, prompt, prompt.text_ids, seed), prompt)
            for prompt in transcribed
            for seed in range(seeds)
        ]
    finally:
        await backend.close()
    result = margins(said, said_again)
    if words:
        spare, gain = extremes([margin for _, margin in words])
        result = replace(result, fewest_spare_tokens=spare, largest_gain=gain)
    return result, backend.lengths, words


def _word_margins(
    backend: Backend, voices: Sequence[str], texts: Sequence[AnalyzedSentence], said: Sequence[SpokenTokens]
) -> list[tuple[str, WordMargin]]:
    """None for a model without an alignment table, and for sentences that did not end."""
    if backend.alignment is None:
        return []
    word_margins = []
    for voice, text, spoken in zip(voices, texts, said, strict=True):
        margin = word_margin(backend.alignment, text, spoken.tokens) if spoken.ended else None
        word_margins += [(voice, margin)] if margin else []
    return word_margins


async def _spoken(backend: Backend, prompt: Prompt, text: tuple[int, ...], seed: int) -> SpokenTokens:
    hops = [hop async for hop in backend.generate(Generation(prompt=prompt, text=text, sampling=Sampling(seed=seed)))]
    outcome = hops[-1].outcome
    ended = outcome is not None and outcome.reason is FinishReason.END_OF_SPEECH
    return SpokenTokens(len(text), [token for hop in hops for token in hop.tokens], ended)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.quality.guard_margins", description="Ordinary speech against the guards."
    )
    add_model(parser)
    parser.add_argument(
        "--list",
        type=Path,
        default=HELD_OUT,
        metavar="FILE",
        help="texts, one a line (default: the held-out sentences)",
    )
    parser.add_argument("--sentences", type=int, metavar="N", help="only N of the list, evenly spread")
    parser.add_argument(
        "--seeds", type=int, default=10, metavar="N", help="for the words of each prompt (default: %(default)s)"
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    with ending(parser, bad_arguments=(OSError, ValueError)):
        sentences = spread(read_sentences(options.list), options.sentences)
    with ending(parser):
        result, bounds, words = asyncio.run(measure(model_directory(options.model), sentences, options.seeds))
    if options.json:
        print(json.dumps(asdict(result), indent=1))
        return
    print(f"{'sentences':<38}{result.sentences:>8}   of which {result.did_not_end} did not end")
    print(
        f"{'fewest speech tokens per text id':<38}{result.fewest_per_text_id:>8}   TOO_SHORT at "
        f"{bounds.min_token_text_ratio:g}"
    )
    print(
        f"{'most speech tokens per text id':<38}{result.most_per_text_id:>8}   RUNAWAY at "
        f"{bounds.max_token_text_ratio:g}"
    )
    print(f"{'most of 25 that equal the prompt':<38}{result.repeated:>8}   PROMPT_SPOKEN at {EQUAL_TOKENS}")
    print(f"{f'... saying its words ({result.prompts_said_again} times)':<38}{result.repeated_by_the_prompts_words:>8}")
    _print_words(words)


def _print_words(words: Sequence[tuple[str, WordMargin]]) -> None:
    """The five sentences that come nearest to each of the two guards."""
    for voice, each in sorted(words, key=lambda margin: margin[1].spare)[:5]:
        print(
            f"{'tokens that the shortest word can spare':<38}{each.spare:>7}   LEFT_OUT below 0: {voice}, {each.text}"
        )
    for voice, each in sorted(words, key=lambda margin: -margin[1].gain)[:5]:
        print(
            f"{'gain of a step back, nats':<38}{each.gain:>8.1f}   REPEATED above {LARGEST_GAIN:g}: {voice}, "
            f"{each.text}"
        )


if __name__ == "__main__":
    main()
