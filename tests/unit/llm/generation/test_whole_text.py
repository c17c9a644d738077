"""The script of a known text: layout, length bounds, masks, replay."""

from collections.abc import Sequence

import numpy as np
import pytest

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_ROWS
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import Scores
from services.llm.generation.script import START, TASK, speech_inputs, text_inputs
from services.llm.generation.whole_text import WholeText

SCORES = np.full(SPEECH_ROWS, -8.8, np.float32)


class Says:
    """Chooses the given ids, and records which ids were masked."""

    def __init__(self, *ids: int) -> None:
        self.ids, self.masked = list(ids), []

    def choose(self, scores: Scores, decisions: Sequence[int]) -> int:
        self.masked.append(set(np.flatnonzero(np.isneginf(scores)).tolist()))
        return self.ids.pop(0) if self.ids else 100 + len(decisions)


def speak(script: WholeText) -> list[int]:
    sent = []
    while script.ready:
        script.take()
        token = script.decide(SCORES)
        sent += [] if token is None else [token]
    return sent


def test_prompt_and_text_stand_around_the_task() -> None:
    script = WholeText(Prompt((1, 2), (30, 31)), (3, 4), Profile.CONTINUOUS, Says())
    assert script.take() == [START, *text_inputs([1, 2, 3, 4]), TASK, *speech_inputs([30, 31])]
    script.decide(SCORES)
    assert script.take() == speech_inputs([100])


def test_a_sentence_is_at_most_twenty_tokens_a_text_id() -> None:
    script = WholeText(Prompt(), (1, 2, 3), Profile.CONTINUOUS, Says())
    assert len(speak(script)) == 60
    assert (script.finish, script.token_count) == (FinishReason.LENGTH, 60)


def test_a_sentence_is_at_most_4096_tokens() -> None:
    script = WholeText(Prompt(), (1,) * 205, Profile.CONTINUOUS, Says())
    assert len(speak(script)) == 4096
    assert script.finish is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("profile", "always"), [(Profile.UPSTREAM, set()), (Profile.CONTINUOUS, {RESERVED_SPEECH, FILL})]
)
def test_the_end_is_masked_for_two_tokens_a_text_id(profile: Profile, always: set[int]) -> None:
    chooser = Says(1, 2, 3, 4, 5, END_OF_SPEECH)
    script = WholeText(Prompt(), (1, 2), profile, chooser)
    assert speak(script) == [1, 2, 3, 4, 5]
    assert script.finish is FinishReason.END_OF_SPEECH
    assert chooser.masked == [always | {END_OF_SPEECH}] * 4 + [always] * 2


def test_the_bounds_are_those_of_the_model_directory() -> None:
    bounds = LengthBounds(min_token_text_ratio=0.6, max_token_text_ratio=1.5)
    chooser = Says()
    script = WholeText(Prompt(), (1, 2, 3, 4, 5), Profile.CONTINUOUS, chooser, lengths=bounds)
    assert len(speak(script)) == 7
    assert [END_OF_SPEECH in masked for masked in chooser.masked] == [True] * 3 + [False] * 4


def test_upstream_ends_early_on_a_reserved_id() -> None:
    script = WholeText(Prompt(), (1, 2), Profile.UPSTREAM, Says(1, RESERVED_SPEECH))
    assert speak(script) == [1]
    assert script.finish is FinishReason.END_OF_SPEECH


def test_replayed_tokens_are_fed_and_counted_but_not_sent() -> None:
    script = WholeText(Prompt(), (1,), Profile.CONTINUOUS, Says(), replay=(7, 8, 9))
    script.take()
    assert script.decide(SCORES) is None
    assert script.take() == speech_inputs([7])
    assert script.decide(SCORES) is None
    assert script.decide(SCORES) is None
    assert script.take() == speech_inputs([9])
    assert script.decide(SCORES) == 103
    assert script.token_count == 4


def test_a_replay_of_the_whole_sentence_ends_it() -> None:
    script = WholeText(Prompt(), (1,), Profile.CONTINUOUS, Says(), replay=tuple(range(20)))
    assert speak(script) == []
    assert (script.finish, script.token_count) == (FinishReason.LENGTH, 20)
