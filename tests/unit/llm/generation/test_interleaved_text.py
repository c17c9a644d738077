"""The scripts of text that arrives over time: blocks, FILLs, the end, and the differences of the
two profiles.
"""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import InternalFault
from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_ROWS
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText, UpstreamText
from services.llm.generation.request import FinishReason, Prompt
from services.llm.generation.sampling import Scores
from services.llm.generation.script import START, TASK, Input, speech_inputs, text_inputs

CONFIG = LlmConfig(
    **dict.fromkeys(
        ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_size", "text_vocabulary"), 1
    ),
    rope_theta=1.0,
    rms_norm_eps=1.0,
    sampling=SamplingParameters(),
)
SCORES = np.full(SPEECH_ROWS, -8.8, np.float32)


class Says:
    """Chooses by decision number: the given id if it is not masked, else 100 + number; records
    which ids were masked.
    """

    def __init__(self, **ids: int) -> None:
        self.ids, self.masked = {int(number[1:]): value for number, value in ids.items()}, []

    def choose(self, scores: Scores, decisions: Sequence[int]) -> int:
        self.masked.append(set(np.flatnonzero(np.isneginf(scores)).tolist()))
        wanted = self.ids.get(len(decisions))
        return 100 + len(decisions) if wanted is None or wanted in self.masked[-1] else wanted


class Speaker:
    """Runs a script and keeps what it fed and sent."""

    def __init__(self, script: ArrivingText) -> None:
        self.script, self.fed, self.sent = script, [], []

    def run(self) -> list[list[Input]]:
        before = len(self.fed)
        while self.script.ready:
            self.fed.append(list(self.script.take()))
            token = self.script.decide(SCORES)
            self.sent += [] if token is None else [token]
        return self.fed[before:]


def speaker(kind: type[ArrivingText], prompt: Prompt = Prompt(), replay: tuple[int, ...] = (), **ids: int) -> Speaker:  # noqa: B008 - frozen
    return Speaker(kind(CONFIG, prompt, Says(**ids), replay))


@pytest.mark.parametrize("kind", [ContinuousText, UpstreamText])
def test_five_text_ids_then_fifteen_tokens_then_waiting(kind: type[ArrivingText]) -> None:
    said = speaker(kind)
    said.script.feed([1, 2, 3, 4])
    assert said.run() == []
    said.script.feed([5])
    fed = said.run()
    assert fed[0] == [START, *text_inputs([1, 2, 3, 4, 5])]
    assert said.sent == list(range(100, 115))
    assert (said.script.ready, said.script.finish) == (0, None)
    said.script.feed([6, 7, 8, 9, 10])
    assert said.run()[0] == text_inputs([6, 7, 8, 9, 10])
    assert said.sent[15:] == list(range(116, 131))


@pytest.mark.parametrize("kind", [ContinuousText, UpstreamText])
def test_a_chosen_fill_asks_for_text_early_and_moves_the_next_one(kind: type[ArrivingText]) -> None:
    said = speaker(kind, n4=FILL)
    said.script.feed([1, 2, 3, 4, 5])
    said.run()
    assert said.sent == [100, 101, 102, 103]
    said.script.feed([1, 2, 3, 4, 5])
    said.run()
    assert len(said.sent) == 4 + 15


@pytest.mark.parametrize("kind", [ContinuousText, UpstreamText])
def test_prompt_speech_is_paired_with_text_first(kind: type[ArrivingText]) -> None:
    said = speaker(kind, Prompt((1, 2, 3), tuple(range(20))))
    said.script.feed([4, 5])
    assert said.run() == []
    said.script.feed([6, 7, 8, 9, 10])
    fed = said.run()
    paired = [
        START,
        *text_inputs([1, 2, 3, 4, 5]),
        *speech_inputs(list(range(15))),
        *text_inputs([6, 7, 8, 9, 10]),
        *speech_inputs(list(range(15, 20))),
    ]
    assert fed[0] == paired
    assert len(said.sent) == 10


def test_continuous_feeds_nothing_twice() -> None:
    said = speaker(ContinuousText, n16=END_OF_SPEECH)
    said.script.feed([1, 2, 3, 4, 5, 6])
    said.run()
    said.script.end()
    assert said.run() == [[*text_inputs([6]), TASK]]
    assert said.script.finish is FinishReason.END_OF_SPEECH


def test_upstream_feeds_the_last_token_twice() -> None:
    said = speaker(UpstreamText, n16=END_OF_SPEECH)
    said.script.feed([1, 2, 3, 4, 5])
    said.script.feed([6])
    fed = said.run()
    assert fed[-1] == speech_inputs([114])
    said.script.end()
    assert said.run() == [[*speech_inputs([114]), *text_inputs([6]), TASK]]


def test_prompt_speech_that_finds_no_text_follows_the_task() -> None:
    prompt = Prompt((1, 2, 3), tuple(range(40)))
    said = speaker(ContinuousText, prompt)
    said.script.feed([4, 5, 6])
    said.script.end()
    head = [START, *text_inputs([1, 2, 3, 4, 5]), *speech_inputs(list(range(15)))]
    assert said.run()[0] == [*head, *text_inputs([6]), TASK, *speech_inputs(list(range(15, 40)))]


def test_upstream_drops_that_prompt_speech() -> None:
    said = speaker(UpstreamText, Prompt((), tuple(range(40))), n0=END_OF_SPEECH)
    said.script.feed([4, 5, 6])
    said.script.end()
    assert said.run() == [[START, *text_inputs([4, 5, 6]), TASK]]


def test_each_phase_masks_what_has_no_meaning_in_it() -> None:
    said = speaker(ContinuousText)
    said.script.feed([1, 2, 3, 4, 5])
    said.script.end()
    said.run()
    assert said.script._chooser.masked[0] == {END_OF_SPEECH, RESERVED_SPEECH}
    assert said.script._chooser.masked[-1] == {RESERVED_SPEECH, FILL}


def test_a_sentence_is_at_most_twenty_tokens_a_text_id() -> None:
    said = speaker(ContinuousText)
    said.script.feed([1, 2, 3])
    said.script.feed([4, 5, 6])
    said.script.end()
    said.run()
    assert (said.script.finish, said.script.token_count, len(said.sent)) == (FinishReason.LENGTH, 120, 120)


@pytest.mark.parametrize("kind", [ContinuousText, UpstreamText])
def test_a_sentence_is_at_most_4096_tokens_however_much_text_comes(kind: type[ArrivingText]) -> None:
    said = speaker(kind)
    for first in range(0, 2000, 5):
        said.script.feed([first] * 5)
        said.run()
    assert (said.script.finish, said.script.token_count, len(said.sent)) == (FinishReason.LENGTH, 4096, 4096)
    at_the_end = speaker(kind)
    at_the_end.script.feed([1, 2, 3, 4, 5] * 41)
    at_the_end.script.end()
    at_the_end.run()
    assert (at_the_end.script.finish, at_the_end.script.token_count) == (FinishReason.LENGTH, 4096)


@pytest.mark.parametrize(("decision", "chosen"), [(3, RESERVED_SPEECH), (16, FILL), (16, RESERVED_SPEECH)])
def test_upstream_has_no_way_on_from_a_reserved_id(decision: int, chosen: int) -> None:
    said = speaker(UpstreamText, **{f"n{decision}": chosen})
    said.script.feed([1, 2, 3, 4, 5])
    said.script.end()
    with pytest.raises(InternalFault, match=f"reserved id {chosen}"):
        said.run()


@given(st.integers(1, 23), st.integers(0, 3), st.integers(0, 40), st.integers(0, 1 << 16))
def test_continuous_does_not_depend_on_how_text_arrives(
    count: int, prompt_text: int, prompt_speech: int, seed: int
) -> None:
    random = Random(seed)
    text, prompt = list(range(count)), Prompt(tuple(range(prompt_text)), tuple(range(prompt_speech)))
    whole = speaker(ContinuousText, prompt, n7=FILL)
    whole.script.feed(text)
    whole.script.end()
    whole.run()
    cut = speaker(ContinuousText, prompt, n7=FILL)
    while text:
        size = random.randint(0, 7)
        cut.script.feed(text[:size])
        del text[:size]
        if random.random() < 0.5:
            cut.run()
    cut.script.end()
    cut.run()
    assert (cut.fed, cut.sent) == (whole.fed, whole.sent)


@pytest.mark.parametrize("kind", [ContinuousText, UpstreamText])
def test_replay_takes_tokens_and_decides_fills_again(kind: type[ArrivingText]) -> None:
    whole = speaker(kind, n4=FILL, n40=END_OF_SPEECH)
    replayed = speaker(kind, replay=(100, 101, 102, 103, *range(105, 110)), n4=FILL, n40=END_OF_SPEECH)
    for said in (whole, replayed):
        for first in range(0, 12, 3):
            said.script.feed([first, first + 1, first + 2])
            said.run()
        said.script.end()
        said.run()
    assert replayed.fed == whole.fed
    assert replayed.sent == whole.sent[9:]
    assert replayed.script.token_count == whole.script.token_count
