"""The scripts with CosyVoice3's vocabulary: its masks, the system part of text that arrives, what
the reference does differently, and the mark without which a sentence is refused.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from cosyserve.errors import FailedPrecondition, InternalFault
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText, UpstreamText
from services.llm.generation.request import FinishReason, Generation, Profile, Prompt, Sampling
from services.llm.generation.requested_script import longest_arriving_text, requested_script
from services.llm.generation.script import START, TASK, WholeText, speech_inputs, text_inputs
from tests.unit.llm.generation.test_scripts import CONFIG, Says, Speaker

START_ID, END, TASK_ID, FILL, LAST = 6561, 6562, 6563, 6564, 6760
SPECIAL = set(range(6561, 6761))
MARK = 9
THIRD = replace(CONFIG, speech=COSYVOICE3.speech, end_of_prompt=MARK)
SYSTEM = (7, 8, MARK)


def whole(profile: Profile, says: Says, text: tuple[int, ...] = (1, 2)) -> Speaker:
    said = Speaker(WholeText(THIRD, Prompt(SYSTEM), text, profile, says))
    said.run()
    return said


def streamed(kind: type[ArrivingText], prompt: Prompt, says: Says) -> Speaker:
    return Speaker(kind(THIRD, prompt, says))


def test_served_the_end_waits_for_the_shortest_length_and_no_other_special_id_comes() -> None:
    says = Says(1, 2, 3, 4, 5, END)
    said = whole(Profile.CONTINUOUS, says)
    assert (said.sent, said.script.finish) == ([1, 2, 3, 4, 5], FinishReason.END_OF_SPEECH)
    assert says.masked == [SPECIAL] * 4 + [SPECIAL - {END}] * 2


@pytest.mark.parametrize("special", [END, TASK_ID, FILL, LAST])
def test_the_reference_masks_the_start_alone_so_that_anything_ends_at_once(special: int) -> None:
    says = Says(special)
    said = whole(Profile.UPSTREAM, says)
    assert (said.sent, said.script.finish) == ([], FinishReason.END_OF_SPEECH)
    assert says.masked == [{START_ID}]


def test_the_shortest_length_counts_the_text_alone() -> None:
    says = Says(n2=END, n40=START_ID)
    assert len(whole(Profile.CONTINUOUS, says, (1,)).sent) == 2
    said = whole(Profile.UPSTREAM, says := Says(START_ID, START_ID, START_ID), (1,))
    assert (said.sent, says.masked) == ([100, 101], [{START_ID}, {START_ID}, set()])


def test_the_system_part_goes_in_whole_and_then_blocks() -> None:
    prompt = Prompt((*SYSTEM, 20, 21, 22), tuple(range(20)))
    for kind in (ContinuousText, UpstreamText):
        said = streamed(kind, prompt, Says())
        assert said.hear([1]) == []
        assert said.hear([2, 3, 4, 5, 6, 7])[0] == [
            START,
            *text_inputs(SYSTEM),
            *text_inputs([20, 21, 22, 1, 2]),
            *speech_inputs(list(range(15))),
            *text_inputs([3, 4, 5, 6, 7]),
            *speech_inputs(list(range(15, 20))),
        ]
        assert len(said.sent) == 10
    assert ContinuousText(THIRD, prompt, Says()).of_voice == 1 + 3
    assert ContinuousText(THIRD, Prompt((*SYSTEM, *range(20, 30)), prompt.speech_tokens), Says()).of_voice == 4 + 30


def test_served_nothing_is_decided_before_five_text_ids() -> None:
    said = streamed(ContinuousText, Prompt(SYSTEM), Says())
    assert said.hear([1, 2, 3, 4]) == []
    assert said.hear([5])[0] == [START, *text_inputs((*SYSTEM, 1, 2, 3, 4, 5))]
    assert len(said.sent) == 15
    assert said.hear([6], end=True)[0] == [*text_inputs([6]), TASK]


def test_the_reference_decides_a_block_from_no_text_and_feeds_its_last_token_twice() -> None:
    said = streamed(UpstreamText, Prompt(SYSTEM), Says(n16=END))
    assert said.hear([1])[0] == [START, *text_inputs(SYSTEM)]
    assert len(said.sent) == 15
    assert said.hear([2], end=True) == [[*speech_inputs([114]), *text_inputs([1, 2]), TASK]]


def test_each_phase_masks_what_has_no_meaning_in_it() -> None:
    says = Says(n17=END)
    assert streamed(ContinuousText, Prompt(SYSTEM), says).hear([1, 2, 3, 4, 5], end=True)
    assert says.masked == [SPECIAL - {FILL}] * 15 + [SPECIAL - {END}] * 2
    says = Says(n17=END)
    assert streamed(UpstreamText, Prompt(SYSTEM), says).hear([1], end=True)
    assert says.masked == [{START_ID}] * 15 + [set()] * 2


def test_the_reference_has_no_way_on_from_the_end_while_text_may_come() -> None:
    with pytest.raises(InternalFault, match=f"special id {END}"):
        streamed(UpstreamText, Prompt(SYSTEM), Says(n3=END)).hear([1])


async def later() -> AsyncIterator[list[int]]:
    yield [MARK]


@pytest.mark.parametrize("profile", Profile)
def test_a_sentence_without_the_mark_is_refused(profile: Profile) -> None:
    sampling = Sampling(profile=profile)
    for prompt in (Prompt(), Prompt((1, 2), (3, 4))):
        whole_text = (
            "neither setup.prompt_text_ids nor text_ids has id 9, the mark <|endofprompt|>, which this model needs"
        )
        with pytest.raises(FailedPrecondition, match=re.escape(whole_text)):
            requested_script(Generation(prompt=prompt, text=(1, 2), sampling=sampling), THIRD, 2048)
        with pytest.raises(
            FailedPrecondition, match=re.escape("setup.prompt_text_ids lacks id 9, the mark <|endofprompt|>")
        ):
            requested_script(Generation(prompt=prompt, text=later(), sampling=sampling), THIRD, 2048)
        # Who reads it looks after the services, not after the request.
        with pytest.raises(FailedPrecondition, match=r"GetVoiceResponse\.system_text_ids\): update both"):
            requested_script(Generation(prompt=prompt, text=later(), sampling=sampling), THIRD, 2048)
    for generation in (
        Generation(prompt=Prompt(SYSTEM), text=(1, 2), sampling=sampling),
        Generation(prompt=Prompt(), text=(*SYSTEM, 1, 2), sampling=sampling),
        Generation(prompt=Prompt(SYSTEM), text=later(), sampling=sampling),
    ):
        assert requested_script(generation, THIRD, 2048).script.finish is None
    assert requested_script(Generation(prompt=Prompt(), text=(1, 2), sampling=sampling), CONFIG, 2048)


def test_a_long_system_part_takes_its_own_positions_alone() -> None:
    """The blocks of text that it is not cut into bring no speech."""
    system = (*range(100, 399), MARK)
    assert longest_arriving_text(THIRD, Prompt(system), 2 + 300 + 21 * 50) == 50
    assert longest_arriving_text(CONFIG, Prompt(system), 2 + 300 + 21 * 50) < 50
