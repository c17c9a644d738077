"""The script of a known text: layout, length bounds, masks, replay. For all scripts: `of_voice`
covers exactly the inputs with which all sentences of a voice begin.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH
from services.llm.generation.config import LengthBounds
from services.llm.generation.interleaved_text import ContinuousText, UpstreamText
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import GreedyChooser
from services.llm.generation.script import START, TASK, speech_inputs, text_inputs
from services.llm.generation.whole_text import WholeText
from tests.unit.llm.generation.test_interleaved_text import CONFIG, SCORES, Says, Speaker


def speak(script: WholeText) -> list[int]:
    said = Speaker(script)
    said.run()
    return said.sent


def test_prompt_and_text_stand_around_the_task() -> None:
    script = WholeText(Prompt((1, 2), (30, 31)), (3, 4), Profile.CONTINUOUS, Says())
    assert script.take() == [START, *text_inputs([1, 2, 3, 4]), TASK, *speech_inputs([30, 31])]
    script.decide(SCORES)
    assert script.take() == speech_inputs([100])


@pytest.mark.parametrize(("text_ids", "most"), [(3, 60), (205, 4096)])
def test_a_sentence_is_at_most_twenty_tokens_a_text_id_and_4096(text_ids: int, most: int) -> None:
    script = WholeText(Prompt(), (1,) * text_ids, Profile.CONTINUOUS, Says())
    assert len(speak(script)) == most
    assert (script.finish, script.token_count) == (FinishReason.LENGTH, most)


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
    said = Speaker(WholeText(Prompt(), (1,), Profile.CONTINUOUS, Says(), replay=(7, 8, 9)))
    assert said.run()[1:5] == [speech_inputs([token]) for token in (7, 8, 9, 103)]
    assert said.sent == list(range(103, 120))
    assert said.script.token_count == 20


def test_a_replay_of_the_whole_sentence_ends_it() -> None:
    script = WholeText(Prompt(), (1,), Profile.CONTINUOUS, Says(), replay=tuple(range(20)))
    assert speak(script) == []
    assert (script.finish, script.token_count) == (FinishReason.LENGTH, 20)


CHOOSER = GreedyChooser()


def whole(prompt: Prompt, text: tuple[int, ...]) -> WholeText:
    return WholeText(prompt, text, Profile.CONTINUOUS, CHOOSER)


def streamed(prompt: Prompt, text: tuple[int, ...]) -> ContinuousText:
    script = ContinuousText(CONFIG, prompt, CHOOSER)
    for text_id in text:
        script.feed([text_id])
    script.end()
    return script


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
    assert whole(prompt, (1,)).of_voice == 1 + text_ids


def test_the_upstream_profile_shares_no_inputs() -> None:
    prompt = Prompt(tuple(range(40)), tuple(range(40)))
    assert UpstreamText(CONFIG, prompt, CHOOSER).of_voice == 0
    assert WholeText(prompt, (1,), Profile.UPSTREAM, CHOOSER).of_voice == 0
