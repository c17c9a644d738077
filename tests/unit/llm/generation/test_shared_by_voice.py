"""`Script.of_voice` covers exactly the inputs with which all sentences of a voice begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm.generation.interleaved_text import ContinuousText, UpstreamText
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.sampling import GreedyChooser
from services.llm.generation.whole_text import WholeText
from tests.unit.llm.generation.test_interleaved_text import CONFIG

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


def test_the_upstream_profile_tells_nothing() -> None:
    prompt = Prompt(tuple(range(40)), tuple(range(40)))
    assert UpstreamText(CONFIG, prompt, CHOOSER).of_voice == 0
    assert WholeText(prompt, (1,), Profile.UPSTREAM, CHOOSER).of_voice == 0
