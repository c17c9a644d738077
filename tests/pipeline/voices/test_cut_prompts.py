"""Where token2wav cuts prompts, the first message of the speech-token model ends where the first
hop does with its look-ahead: the orchestrator learns of it from the first answer.
"""

import numpy as np
import pytest

from cosyserve.generations.prompt_cut import cut_for
from cosyserve.v1 import profile_pb2, voice_pb2
from services.orchestrator.speech.utterance import tokens_to_first_border
from services.orchestrator.stages.token2wav import PromptCut
from services.token2wav.inputs.chunking import trim_prompt
from services.token2wav.inputs.request import Voice
from tests.pipeline.calling import speak
from tests.stacks.scripted_stages import Stack


def prompt(tokens: int) -> voice_pb2.PromptRecording:
    """Its bytes are its tokens."""
    return voice_pb2.PromptRecording(audio=bytes(tokens), transcript="three words here", language_code="en")


async def first_messages(running: Stack, *tokens: int, **request: object) -> list[int]:
    """Of the speech-token model, for one request after the other."""
    setups = running.scripts["llm"][0].llm_setups
    setups.clear()
    for count in tokens:
        await speak(running, "word", prompt=prompt(count), **request)
    return [setup.first_message_tokens for setup in setups]


async def test_messages_follow_the_prompt_that_the_decoder_cuts(running: Stack) -> None:
    running.scripts["token2wav"][0].first_hop_tokens = 20
    # The first request asks before it is known: 13 tokens behind 87, and three of look-ahead. Two
    # seconds are left of a prompt in any case.
    assert await first_messages(running, 87, 87, 168, 60) == [13 + 3, 20 + 3, 20 + 3, 20 + 3]
    assert await first_messages(running, 51, 53) == [24 + 3, 22 + 3]
    upstream = {"profile": profile_pb2.PROFILE_UPSTREAM}
    assert await first_messages(running, 87, **upstream) == [13 + 3]


async def test_a_decoder_that_does_not_tell_cuts_nothing(running: Stack) -> None:
    assert await first_messages(running, 87, 168) == [13 + 3, 7 + 3]


@pytest.mark.parametrize("first_hop", [0, 3, 11, 20, 25])
def test_both_cut_the_same(first_hop: int) -> None:
    for tokens in range(240):
        voice = Voice(np.zeros(tokens, np.int64), np.zeros((2 * tokens, 80), np.float32), np.ones(192, np.float32))
        left = PromptCut(first_hop).left(tokens)
        assert left == len(trim_prompt(voice, first_hop).tokens) == tokens - cut_for(tokens, first_hop)
        if first_hop and tokens >= 74:
            assert tokens_to_first_border(left, 1) == first_hop
