"""How near to a guard's threshold speech comes, by the guard's own measure."""

import json
import random

import pytest

from services.llm.generation.request import Prompt
from services.llm.guards.repetition import LARGEST_GAIN
from services.llm.guards.token_guards import EQUAL_TOKENS
from tools.quality import guard_margins
from tools.quality.guard_margins import Margins, SpokenTokens, margins, repeated

PROMPT = random.Random(1).sample(range(3000), 60)
OTHER = random.Random(2).sample(range(3000, 6000), 80)


def with_equal(count: int) -> list[int]:
    """Speech of which `count` tokens of one second are the prompt's."""
    tokens = list(OTHER)
    for place in random.Random(count).sample(range(25), count):
        tokens[40 + place] = PROMPT[10 + place]
    return tokens


def test_what_hardly_changes_and_what_is_short_repeats_nothing() -> None:
    pairs = (([5] * 60, [5] * 60), (PROMPT[:24], PROMPT), (PROMPT, PROMPT[:24]), (PROMPT, PROMPT))
    assert [repeated(*pair) for pair in pairs] == [0, 0, 0, 25]


def test_sentences_that_do_not_end_say_nothing_about_length() -> None:
    prompt = Prompt((1,), tuple(PROMPT))
    said = [
        (SpokenTokens(10, OTHER[:12], True), prompt),
        (SpokenTokens(10, OTHER[:21], True), prompt),
        (SpokenTokens(10, OTHER, False), prompt),
    ]
    assert margins(said, [(SpokenTokens(40, with_equal(16), True), prompt)]) == Margins(
        sentences=3,
        did_not_end=1,
        fewest_per_text_id=1.2,
        most_per_text_id=2.1,
        repeated=0,
        prompts_said_again=1,
        repeated_by_the_prompts_words=16,
    )
    with pytest.raises(ValueError, match="none of 1"):
        margins(said[2:], [])


def test_the_bundled_voices_are_far_from_every_guard(capsys: pytest.CaptureFixture[str]) -> None:
    guard_margins.main(["--sentences", "1", "--seeds", "1", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["sentences"] == result["prompts_said_again"] == 2
    assert result["did_not_end"] == 0
    assert 0.6 < result["fewest_per_text_id"] <= result["most_per_text_id"] < 4
    assert result["repeated"] < EQUAL_TOKENS
    assert result["fewest_spare_tokens"] >= 0
    assert result["largest_gain"] < LARGEST_GAIN
