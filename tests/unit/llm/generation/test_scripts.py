"""The scripts of text that arrives over time: blocks, FILLs, the end, and the differences of the
two profiles. The script of a known text: layout, length bounds, masks, replay. For all scripts:
`of_voice` covers exactly the inputs with which all sentences of a voice begin.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.errors import InternalFault
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.llm.generation.config import LengthBounds, LlmConfig, SamplingParameters
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText, UpstreamText
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import GreedyChooser, Scores
from services.llm.generation.script import START, TASK, Input, Script, WholeText, speech_inputs, text_inputs

SPEECH = COSYVOICE2.speech
END, FILL, RESERVED = SPEECH.end, SPEECH.fill, 6562
CONFIG = LlmConfig(
    speech=SPEECH,
    **dict.fromkeys(
        ("hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_size", "text_vocabulary"), 1
    ),
    rope_theta=1.0,
    rms_norm_eps=1.0,
    sampling=SamplingParameters(),
)
CHOOSER, NO_PROMPT = GreedyChooser(), Prompt()
SCORES = np.full(SPEECH.rows, -8.8, np.float32)


class Says:
    """Chooses by decision number: the given id if it is not masked, else 100 + number; records
    which ids were masked. ids: of the first decisions; numbered: of decision n4 and so on.
    """

    def __init__(self, *ids: int, **numbered: int) -> None:
        self.ids = dict(enumerate(ids)) | {int(number[1:]): value for number, value in numbered.items()}
        self.masked = []

    def choose(self, scores: Scores, decisions: Sequence[int]) -> int:
        self.masked.append(set(np.flatnonzero(np.isneginf(scores)).tolist()))
        wanted = self.ids.get(len(decisions))
        return 100 + len(decisions) if wanted is None or wanted in self.masked[-1] else wanted


class Speaker:
    """Runs a script and keeps what it fed and sent."""

    def __init__(self, script: Script) -> None:
        self.script, self.fed, self.sent = script, [], []
        self.scores = np.full(script.speech.rows, -8.8, np.float32)

    def run(self) -> list[list[Input]]:
        before = len(self.fed)
        while self.script.ready:
            self.fed.append(list(self.script.take()))
            token = self.script.decide(self.scores)
            self.sent += [] if token is None else [token]
        return self.fed[before:]

    def hear(self, *pieces: list[int], end: bool = False) -> list[list[Input]]:
        """What is fed after these pieces of text, and after the end of it."""
        for piece in pieces:
            self.script.feed(piece)
        if end:
            self.script.end()
        return self.run()


def speaker(kind: type[ArrivingText], prompt: Prompt = NO_PROMPT, replay: tuple[int, ...] = (), **ids: int) -> Speaker:
    return Speaker(kind(CONFIG, prompt, Says(**ids), replay))


both = pytest.mark.parametrize("kind", [ContinuousText, UpstreamText])


@both
def test_five_text_ids_then_fifteen_tokens_then_waiting(kind: type[ArrivingText]) -> None:
    said = speaker(kind)
    assert said.hear([1, 2, 3, 4]) == []
    assert said.hear([5])[0] == [START, *text_inputs([1, 2, 3, 4, 5])]
    assert (said.sent, said.script.ready, said.script.finish) == (list(range(100, 115)), 0, None)
    assert said.hear([6, 7, 8, 9, 10])[0] == text_inputs([6, 7, 8, 9, 10])
    assert said.sent[15:] == list(range(116, 131))


@both
def test_a_chosen_fill_asks_for_text_early_and_moves_the_next_one(kind: type[ArrivingText]) -> None:
    said = speaker(kind, n4=FILL)
    said.hear([1, 2, 3, 4, 5])
    assert said.sent == [100, 101, 102, 103]
    said.hear([1, 2, 3, 4, 5])
    assert len(said.sent) == 4 + 15


@both
def test_prompt_speech_is_paired_with_text_first(kind: type[ArrivingText]) -> None:
    said = speaker(kind, Prompt((1, 2, 3), tuple(range(20))))
    assert said.hear([4, 5]) == []
    assert said.hear([6, 7, 8, 9, 10])[0] == [
        START,
        *text_inputs([1, 2, 3, 4, 5]),
        *speech_inputs(list(range(15))),
        *text_inputs([6, 7, 8, 9, 10]),
        *speech_inputs(list(range(15, 20))),
    ]
    assert len(said.sent) == 10


def test_continuous_feeds_nothing_twice() -> None:
    said = speaker(ContinuousText, n16=END)
    said.hear([1, 2, 3, 4, 5, 6])
    assert said.hear(end=True) == [[*text_inputs([6]), TASK]]
    assert said.script.finish is FinishReason.END_OF_SPEECH


def test_upstream_feeds_the_last_token_twice() -> None:
    said = speaker(UpstreamText, n16=END)
    assert said.hear([1, 2, 3, 4, 5], [6])[-1] == speech_inputs([114])
    assert said.hear(end=True) == [[*speech_inputs([114]), *text_inputs([6]), TASK]]


def test_prompt_speech_that_finds_no_text_follows_the_task_and_upstream_drops_it() -> None:
    head = [START, *text_inputs([1, 2, 3, 4, 5]), *speech_inputs(list(range(15)))]
    continuous = speaker(ContinuousText, Prompt((1, 2, 3), tuple(range(40)))).hear([4, 5, 6], end=True)
    assert continuous[0] == [*head, *text_inputs([6]), TASK, *speech_inputs(list(range(15, 40)))]
    upstream = speaker(UpstreamText, Prompt((), tuple(range(40))), n0=END)
    assert upstream.hear([4, 5, 6], end=True) == [[START, *text_inputs([4, 5, 6]), TASK]]


def test_each_phase_masks_what_has_no_meaning_in_it() -> None:
    said = speaker(ContinuousText)
    said.hear([1, 2, 3, 4, 5], end=True)
    first, *_, last = said.script._chooser.masked
    assert (first, last) == ({END, RESERVED}, {RESERVED, FILL})


def outcome(said: Speaker) -> tuple[FinishReason | None, int, int]:
    """How the sentence ended, how many tokens it has, and how many of them were sent."""
    return said.script.finish, said.script.token_count, len(said.sent)


def test_a_sentence_is_at_most_twenty_tokens_a_text_id() -> None:
    said = speaker(ContinuousText)
    said.hear([1, 2, 3], [4, 5, 6], end=True)
    assert outcome(said) == (FinishReason.LENGTH, 120, 120)


@both
def test_a_sentence_is_at_most_4096_tokens_however_much_text_comes(kind: type[ArrivingText]) -> None:
    arriving, complete = speaker(kind), speaker(kind)
    for first in range(0, 2000, 5):
        arriving.hear([first] * 5)
    complete.hear([1, 2, 3, 4, 5] * 41, end=True)
    assert outcome(arriving) == outcome(complete) == (FinishReason.LENGTH, 4096, 4096)


@pytest.mark.parametrize(("decision", "chosen"), [(3, RESERVED), (16, FILL), (16, RESERVED)])
def test_upstream_has_no_way_on_from_a_reserved_id(decision: int, chosen: int) -> None:
    said = speaker(UpstreamText, **{f"n{decision}": chosen})
    with pytest.raises(InternalFault, match=f"special id {chosen}"):
        said.hear([1, 2, 3, 4, 5], end=True)


@settings(deadline=None)
@given(st.integers(1, 23), st.integers(0, 3), st.integers(0, 40), st.integers(0, 1 << 16))
def test_continuous_does_not_depend_on_how_text_arrives(
    count: int, prompt_text: int, prompt_speech: int, seed: int
) -> None:
    random = Random(seed)
    text, prompt = list(range(count)), Prompt(tuple(range(prompt_text)), tuple(range(prompt_speech)))
    whole, cut = speaker(ContinuousText, prompt, n7=FILL), speaker(ContinuousText, prompt, n7=FILL)
    whole.hear(text, end=True)
    while text:
        size = random.randint(0, 7)
        cut.script.feed(text[:size])
        del text[:size]
        if random.random() < 0.5:
            cut.run()
    cut.hear(end=True)
    assert (cut.fed, cut.sent) == (whole.fed, whole.sent)


@both
def test_replay_takes_tokens_and_decides_fills_again(kind: type[ArrivingText]) -> None:
    whole = speaker(kind, n4=FILL, n40=END)
    replayed = speaker(kind, replay=(100, 101, 102, 103, *range(105, 110)), n4=FILL, n40=END)
    for said in (whole, replayed):
        for first in range(0, 12, 3):
            said.hear([first, first + 1, first + 2])
        said.hear(end=True)
    count = whole.script.token_count
    assert (replayed.fed, replayed.sent, replayed.script.token_count) == (whole.fed, whole.sent[9:], count)


def whole(
    prompt: Prompt = NO_PROMPT, text: tuple[int, ...] = (1,), says: Says | None = None, **options: Any
) -> WholeText:
    """Of profile `continuous`, and greedy where it does not say anything else."""
    config = replace(CONFIG, lengths=options.pop("lengths", CONFIG.lengths))
    return WholeText(config, prompt, text, options.pop("profile", Profile.CONTINUOUS), says or CHOOSER, **options)


def spoken(text: tuple[int, ...], says: Says | None = None, **options: Any) -> Speaker:
    said = Speaker(whole(text=text, says=says or Says(), **options))
    said.run()
    return said


def test_prompt_and_text_stand_around_the_task() -> None:
    script = whole(Prompt((1, 2), (30, 31)), (3, 4), Says())
    assert script.take() == [START, *text_inputs([1, 2, 3, 4]), TASK, *speech_inputs([30, 31])]
    script.decide(SCORES)
    assert script.take() == speech_inputs([100])


@pytest.mark.parametrize(("text_ids", "most"), [(3, 60), (205, 4096)])
def test_a_known_text_has_at_most_twenty_tokens_a_text_id_and_4096(text_ids: int, most: int) -> None:
    assert outcome(spoken((1,) * text_ids)) == (FinishReason.LENGTH, most, most)


@pytest.mark.parametrize(("profile", "always"), [(Profile.UPSTREAM, set()), (Profile.CONTINUOUS, {RESERVED, FILL})])
def test_the_end_is_masked_for_two_tokens_a_text_id(profile: Profile, always: set[int]) -> None:
    says = Says(1, 2, 3, 4, 5, END)
    said = spoken((1, 2), says, profile=profile)
    assert (said.sent, said.script.finish) == ([1, 2, 3, 4, 5], FinishReason.END_OF_SPEECH)
    assert says.masked == [always | {END}] * 4 + [always] * 2


def test_the_bounds_are_those_of_the_model_directory() -> None:
    says, bounds = Says(), LengthBounds(min_token_text_ratio=0.6, max_token_text_ratio=1.5)
    assert len(spoken((1, 2, 3, 4, 5), says, lengths=bounds).sent) == 7
    assert [END in masked for masked in says.masked] == [True] * 3 + [False] * 4


def test_upstream_ends_early_on_a_reserved_id() -> None:
    said = spoken((1, 2), Says(1, RESERVED), profile=Profile.UPSTREAM)
    assert (said.sent, said.script.finish) == ([1], FinishReason.END_OF_SPEECH)


def test_replayed_tokens_are_fed_and_counted_but_not_sent() -> None:
    said = spoken((1,), replay=(7, 8, 9))
    assert said.fed[1:5] == [speech_inputs([token]) for token in (7, 8, 9, 103)]
    assert (said.sent, said.script.token_count) == (list(range(103, 120)), 20)
    assert outcome(spoken((1,), replay=tuple(range(20)))) == (FinishReason.LENGTH, 20, 0)


def streamed(prompt: Prompt, text: tuple[int, ...]) -> ContinuousText:
    script = ContinuousText(CONFIG, prompt, CHOOSER)
    for text_id in text:
        script.feed([text_id])
    script.end()
    return script


@settings(deadline=None)
@given(text_ids=st.integers(0, 30), speech=st.integers(0, 50), words=st.integers(1, 12))
def test_sentences_of_a_voice_begin_with_it_and_part_behind(text_ids: int, speech: int, words: int) -> None:
    prompt = Prompt(tuple(range(text_ids)), tuple(range(speech)))
    for make in (whole, streamed):
        one, other = make(prompt, (500,) * words), make(prompt, (600,) * (words + 3))
        of_voice = one.of_voice
        assert of_voice == other.of_voice >= 1
        mine, theirs = one.take(), other.take()
        assert mine[:of_voice] == theirs[:of_voice]
        assert len(mine) >= of_voice


@pytest.mark.parametrize(
    ("text_ids", "speech", "of_voice"), [(44, 61, 1 + 5 * 5 + 61), (12, 61, 1 + 2 * 5 + 2 * 15), (4, 61, 1), (44, 0, 1)]
)
def test_a_stream_pairs_its_prompt_as_far_as_the_prompts_text_goes(text_ids: int, speech: int, of_voice: int) -> None:
    prompt = Prompt(tuple(range(text_ids)), tuple(range(speech)))
    assert ContinuousText(CONFIG, prompt, CHOOSER).of_voice == of_voice
    assert whole(prompt).of_voice == 1 + text_ids
    assert UpstreamText(CONFIG, prompt, CHOOSER).of_voice == whole(prompt, profile=Profile.UPSTREAM).of_voice == 0
