"""How far ordinary speech is from `LEFT_OUT` and `REPEATED`."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.orchestrator.speech.word_alignment import FEWEST_LETTERS, fewest_tokens, tokens_of

from services.frontend.analysis.analyzer import Sentence
from services.llm.guards.alignment import AlignmentTable
from services.llm.guards.repetition import step_back_gain
from services.orchestrator.speech.utterance import SpokenWord


@dataclass(frozen=True)
class WordMargin:
    """Of one sentence. spare: tokens that its shortest word has more than it needs; below 0 it
    counts as left out. gain: of the best step back in the text, in nats."""

    text: str
    spare: int
    gain: float


def word_margin(table: AlignmentTable, sentence: Sentence, tokens: list[int]) -> WordMargin | None:
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
