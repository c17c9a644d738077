"""Prompts cut for an early first hop."""

import numpy as np
import pytest

from cosyserve.errors import SettingsError
from services.token2wav.inputs.chunking import LEAST_PROMPT, check_first_hop, schedule, trim_prompt
from services.token2wav.inputs.request import Hops, Profile, Voice


def voice(tokens: int) -> Voice:
    mel = np.arange(2 * tokens, dtype=np.float32)[:, None].repeat(80, 1)
    return Voice(np.arange(tokens), mel, np.ones(192, np.float32), "key")


@pytest.mark.parametrize("first_hop", [11, 15, 25])
def test_the_first_hop_has_the_length_that_was_asked_for(first_hop: int) -> None:
    for prompt in range(LEAST_PROMPT + 24, LEAST_PROMPT + 60):
        cut = trim_prompt(voice(prompt), first_hop)
        hop = schedule(Profile.CONTINUOUS, len(cut.tokens), Hops()).next(None, 100, finished=False)
        assert hop is not None
        assert hop.end == first_hop
        assert 0 <= prompt - len(cut.tokens) < 25


def test_it_is_the_start_that_goes_and_tokens_and_mel_go_together() -> None:
    whole, cut = voice(87), trim_prompt(voice(87), 15)
    assert len(cut.tokens) == 85
    np.testing.assert_array_equal(cut.tokens, whole.tokens[2:])
    np.testing.assert_array_equal(cut.mel, whole.mel[4:])
    assert cut.state_key != whole.state_key


def test_a_short_prompt_and_no_wish_leave_it_as_it_is() -> None:
    for prompt in (0, 1, 30, 50, 51):
        whole = voice(prompt)
        assert trim_prompt(whole, 15) is whole
    whole = voice(87)
    assert trim_prompt(whole, 0) is whole


@pytest.mark.parametrize("tokens", [1, 10, 26, -1])
def test_hops_that_give_no_sound_or_no_block_are_refused(tokens: int) -> None:
    with pytest.raises(SettingsError, match="11 to 25"):
        check_first_hop(tokens)
