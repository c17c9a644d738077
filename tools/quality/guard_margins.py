"""`python -m tools.quality.guard_margins [--model DIR] [--sentences N] [--seeds N] [--json]`: how far the thresholds of the llm's guards
are from ordinary speech.

Speaks N sentences of the held-out list with each voice of a model directory, in this process and as speech tokens only, and says the very
words of each voice's prompt with several seeds: the likeliest cause of a false alarm of `PROMPT_SPOKEN`.

Exit status: 0 measured, 1 it failed, 2 bad arguments.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cosyserve.commands.options import model_directory
from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis import Analyzer
from services.frontend.normalize import Normalizer
from services.frontend.speaker_file import read_voices
from services.frontend.text_tokenizer import read_tokenizer
from services.frontend.wetext_package import WeText
from services.llm.backend import Backend, load_backend
from services.llm.config import LengthBounds
from services.llm.guards import DISTINCT_TOKENS, EQUAL_TOKENS, RUN_TOKENS
from services.llm.request import FinishReason, Generation, Prompt, Sampling
from services.llm.settings import LlmSettings
from tools.quality.sentences import Sentence, read_sentences, spread


@dataclass(frozen=True)
class SpokenTokens:
    """One sentence. text_ids: how many."""

    text_ids: int
    tokens: list[int]
    ended: bool
    """Whether the model ended it, and not its longest length."""


@dataclass(frozen=True)
class Margins:
    """Tokens per text id are those of the sentences that came to an end. repeated: the most tokens of a second that equal the prompt's."""

    sentences: int
    did_not_end: int
    fewest_per_text_id: float
    most_per_text_id: float
    repeated: int
    prompts_said_again: int
    repeated_by_the_prompts_words: int


def repeated(made: Sequence[int], prompt: Sequence[int]) -> int:
    """The most tokens of a second of `made` that equal those of any second of `prompt` at the same distance; a second with so few different
    tokens that the guard passes it over does not count."""
    windows = [made[at : at + RUN_TOKENS] for at in range(len(made) - RUN_TOKENS + 1)]
    varied = np.asarray([len(set(window)) >= DISTINCT_TOKENS for window in windows], bool)
    if not varied.any() or len(prompt) < RUN_TOKENS:
        return 0
    equal = np.asarray(made)[:, None] == np.asarray(prompt)[None, :]
    most = 0
    for offset in range(RUN_TOKENS - len(made), len(prompt) - RUN_TOKENS + 1):
        hits, first = np.diagonal(equal, offset), max(-offset, 0)
        sums = np.concatenate(([0], np.cumsum(hits)))
        counts = sums[RUN_TOKENS:] - sums[:-RUN_TOKENS]
        most = max(most, int((counts * varied[first : first + len(counts)]).max()))
    return most


def margins(said: Sequence[tuple[SpokenTokens, Prompt]], said_again: Sequence[tuple[SpokenTokens, Prompt]]) -> Margins:
    """said: held-out sentences; said_again: the words of the prompts, each beside its prompt. Raises ValueError when no sentence ended."""
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
        repeated_by_the_prompts_words=max((repeated(spoken.tokens, prompt.speech_tokens) for spoken, prompt in said_again), default=0),
    )


async def measure(model: Path, sentences: Sequence[Sentence], seeds: int) -> tuple[Margins, LengthBounds]:
    """The margins, and the bounds that they are margins to. Raises ModelError for a directory that cannot speak, ValueError without
    voices."""
    directory = ModelDirectory(model)
    tokenizer = read_tokenizer(directory)
    prompts = [Prompt(voice.prompt_text_ids, voice.prompt_speech_tokens) for voice in read_voices(directory, tokenizer)]
    if not prompts:
        raise ValueError(f"{model} has no voices of its own")
    analyzer = Analyzer(Normalizer(WeText()), tokenizer)
    texts = [part.token_ids for sentence in sentences for part in analyzer.sentences(sentence.text)]
    backend = load_backend(LlmSettings(listen="127.0.0.1:0", model=model))
    try:
        said = [(await _spoken(backend, prompt, text, seed), prompt) for prompt in prompts for seed, text in enumerate(texts)]
        transcribed = [prompt for prompt in prompts if prompt.text_ids]
        said_again = [(await _spoken(backend, prompt, prompt.text_ids, seed), prompt) for prompt in transcribed for seed in range(seeds)]
    finally:
        await backend.close()
    return margins(said, said_again), backend.lengths


async def _spoken(backend: Backend, prompt: Prompt, text: tuple[int, ...], seed: int) -> SpokenTokens:
    hops = [hop async for hop in backend.generate(Generation(prompt=prompt, text=text, sampling=Sampling(seed=seed)))]
    outcome = hops[-1].outcome
    ended = outcome is not None and outcome.reason is FinishReason.END_OF_SPEECH
    return SpokenTokens(len(text), [token for hop in hops for token in hop.tokens], ended)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tools.quality.guard_margins", description="Ordinary speech against the guards.")
    parser.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: models/demo)")
    parser.add_argument("--sentences", type=int, metavar="N", help="only N of the held-out list, evenly spread")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="for the words of each prompt (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    options = parser.parse_args(arguments)
    try:
        sentences = spread(read_sentences(), options.sentences)
    except ValueError as error:
        parser.error(str(error))
    try:
        found, bounds = asyncio.run(measure(model_directory(options.model), sentences, options.seeds))
    except (CosyserveError, ModelError, SettingsError, OSError, ValueError) as error:
        print(f"guard_margins: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(asdict(found), indent=1))
        return 0
    print(f"{'sentences':<38}{found.sentences:>8}   of which {found.did_not_end} did not end")
    print(f"{'fewest speech tokens per text id':<38}{found.fewest_per_text_id:>8}   TOO_SHORT at {bounds.min_token_text_ratio:g}")
    print(f"{'most speech tokens per text id':<38}{found.most_per_text_id:>8}   RUNAWAY at {bounds.max_token_text_ratio:g}")
    print(f"{'most of 25 that equal the prompt':<38}{found.repeated:>8}   PROMPT_SPOKEN at {EQUAL_TOKENS}")
    print(f"{f'... saying its words ({found.prompts_said_again} times)':<38}{found.repeated_by_the_prompts_words:>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
