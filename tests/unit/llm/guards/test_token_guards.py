"""Token guards: what is a fault, what is not, and that the cutting into hops does not matter."""

from contextlib import nullcontext

import numpy as np
import pytest

from cosyserve.errors import Absurd, CosyserveError, PromptSpoken, Runaway, TooShort
from cosyserve.telemetry import Timing
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import FinishReason, Hop, Outcome, Prompt
from services.llm.guards.token_guards import DISTINCT_TOKENS, EQUAL_TOKENS, LONGEST_RUN, RUN_TOKENS, TokenGuards

CHANCE = np.random.default_rng(0)
PROMPT: list[int] = CHANCE.integers(0, 6561, 90).tolist()
OTHER: list[int] = CHANCE.integers(0, 6561, 90).tolist()
NEVER = Timing("never", 0, 0)


TEXT = list(range(100, 110))
BOUNDS = LengthBounds(min_token_text_ratio=2, max_token_text_ratio=20)


def guards(prompt: list[int] = PROMPT, prompt_text: tuple[int, ...] = (1, 2, 3, 4, 5)) -> TokenGuards:
    return TokenGuards(Prompt(prompt_text, tuple(prompt)), BOUNDS, TEXT)


def ended(reason: FinishReason = FinishReason.END_OF_SPEECH) -> Hop:
    return Hop([], (), Outcome(reason, 0, NEVER, NEVER, NEVER))


def fault(tokens: list[int], cut: int, prompt: list[int] = PROMPT) -> CosyserveError | None:
    """What the guards raise for these tokens, `cut` at a time."""
    of = guards(prompt)
    try:
        for at in range(0, len(tokens), cut):
            of.see(tokens[at : at + cut])
    except CosyserveError as error:
        return error
    return None


def is_repetition(tokens: list[int], cut: int, prompt: list[int] = PROMPT) -> bool:
    return type(fault(tokens, cut, prompt)) is PromptSpoken


@pytest.mark.parametrize("cut", [1, 7, 25, 1000])
@pytest.mark.parametrize("begin", [0, 30, 90 - RUN_TOKENS])
def test_a_second_of_the_prompt_is_found_wherever_it_stands(begin: int, cut: int) -> None:
    stretch = PROMPT[begin : begin + RUN_TOKENS]
    for said, found in ((stretch, True), (stretch[: EQUAL_TOKENS - 1], False), ([], False)):
        assert is_repetition(OTHER[:40] + said + OTHER[40:], cut) == found
    assert is_repetition(stretch, cut)


@pytest.mark.parametrize("cut", [1, 25])
def test_a_few_other_tokens_between_do_not_hide_it(cut: int) -> None:
    stretch = PROMPT[10 : 10 + RUN_TOKENS]
    for at in range(0, RUN_TOKENS, RUN_TOKENS // (RUN_TOKENS - EQUAL_TOKENS)):
        stretch[at] = (stretch[at] + 1) % 6561
    assert is_repetition(OTHER[:13] + stretch, cut)


@pytest.fixture
def any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token may come as often as it likes."""
    monkeypatch.setattr("services.llm.guards.token_guards.LONGEST_RUN", 10**9)


@pytest.mark.usefixtures("any_run")
def test_a_pause_or_a_held_sound_is_no_repetition() -> None:
    for few in ([5] * 60, (list(range(DISTINCT_TOKENS - 1)) * 20)[:60]):
        assert not is_repetition(few, 25, few)


@pytest.mark.usefixtures("any_run")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("tokens", [[5] * 1024, [*[5] * 999, *range(RUN_TOKENS)], [5, 6, 7] * 341])
def test_a_held_sound_against_a_long_prompt_of_it_is_distinguished_at_once(tokens: list[int]) -> None:
    """Every stretch equals every stretch: comparing them all took half a minute."""
    guards((tokens * 2)[:900] + [5] * 600).see(tokens)


@pytest.mark.parametrize("cut", [1, 7, 25, 1000])
def test_one_token_for_two_seconds_is_no_speech(cut: int) -> None:
    assert fault(OTHER[:30] + [9] * LONGEST_RUN + OTHER[30:] + [9] * LONGEST_RUN, cut, []) is None
    for tokens in (OTHER[:30] + [9] * (LONGEST_RUN + 1), [9] * 1000):
        found = fault(tokens, cut, [])
        assert (type(found), str(found)) == (Absurd, "speech token 9 came 51 times in a row, 2 s of one sound")


@pytest.mark.parametrize(
    ("prompt_text", "is_asked_for"),
    [
        ((1, 2, 103, 104, 105, 3), True),
        ((103, 104, 105), True),
        ((1, 103, 104, 2, 105), False),
        ((105, 104, 103), False),
        ((), False),
    ],
)
def test_words_of_the_prompt_that_the_text_has_too_may_sound_alike(
    prompt_text: tuple[int, ...], is_asked_for: bool
) -> None:
    """Three text ids are as many as are said in 20 speech tokens, with 2 to 20 tokens for each."""
    with nullcontext() if is_asked_for else pytest.raises(PromptSpoken):
        guards(PROMPT, prompt_text).see(PROMPT)


def test_text_that_comes_later_counts_when_it_is_there() -> None:
    text = [103]
    of = TokenGuards(Prompt((103, 104, 105), tuple(PROMPT)), BOUNDS, text)
    of.see(PROMPT[:24])
    text += [104, 105]
    of.see(PROMPT[24:])


def test_replayed_tokens_count() -> None:
    of = guards()
    of.see(tuple(PROMPT[:20]))
    with pytest.raises(PromptSpoken, match="tokens up to 25 repeat its tokens from 0 on"):
        of.see(PROMPT[20:25])


@pytest.mark.parametrize(("tokens", "is_short"), [(0, True), (19, True), (20, True), (21, False), (80, False)])
def test_the_fewest_tokens_that_may_be_are_too_few(tokens: int, is_short: bool) -> None:
    of = guards([])
    of.see(OTHER[:tokens])
    too_short = pytest.raises(TooShort, match=f"{tokens} speech tokens for 10 text ids")
    with too_short if is_short else nullcontext():
        of.end(ended())


def test_a_sentence_without_an_end_is_a_runaway() -> None:
    of = guards()
    of.see(OTHER)
    of.end(Hop(OTHER))
    with pytest.raises(Runaway, match="90 speech tokens for 10 text ids"):
        of.end(ended(FinishReason.LENGTH))
