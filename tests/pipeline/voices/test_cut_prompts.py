"""Where token2wav cuts prompts, the first message of the speech-token model ends where the first
hop does with its look-ahead: the orchestrator learns of it from the first answer.
"""

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest

from cosyserve.engines.compatibility import Identity
from cosyserve.generations.prompt_cut import cut_for
from cosyserve.rpc.replicas import Replica
from cosyserve.v1 import identity_pb2, profile_pb2, voice_pb2
from services.orchestrator.speech.utterance import tokens_to_first_border
from services.orchestrator.stages.prompt_cut import PromptCut
from services.token2wav.inputs.chunking import trim_prompt
from services.token2wav.inputs.request import Voice
from tests.pipeline.calling import speak
from tests.stacks.scripted_stages import Stack, stack

ENGINE, OTHER = (Identity("model", "torch", precision, "cuda") for precision in ("cut", "whole"))


def replica() -> Replica:
    channel: Any = None
    return Replica("here", channel, serving=True)


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
        left = len(trim_prompt(voice, first_hop).tokens)
        assert left == tokens - cut_for(tokens, first_hop)
        cut = PromptCut()
        cut.says(replica(), ENGINE, first_hop)
        assert cut.first_hop(tokens, 1, None) == tokens_to_first_border(left, 1)
        if first_hop and tokens >= 74:
            assert cut.first_hop(tokens, 1, ENGINE) == first_hop


def test_where_replicas_differ_the_one_that_speaks_the_request_decides() -> None:
    cut, old, new = PromptCut(), replica(), replica()
    assert (cut.first_hop(87, 1, None), cut.first_hop_tokens) == (13, 0)
    cut.says(new, ENGINE, 20)
    assert (cut.first_hop(87, 1, None), cut.first_hop_tokens) == (20, 20)
    cut.says(old, OTHER, 0)
    assert (cut.first_hop(87, 1, ENGINE), cut.first_hop(87, 1, OTHER), cut.first_hop_tokens) == (20, 13, 0)
    cut.changed([new])
    assert (cut.first_hop(87, 1, OTHER), cut.first_hop_tokens) == (20, 20)
    old.serving = False
    cut.says(old, OTHER, 0)  # its last answer comes late
    assert (cut.first_hop(87, 1, OTHER), cut.first_hop_tokens) == (20, 20)


@pytest.mark.parametrize(
    ("prompt_tokens", "first_hop"),
    [
        pytest.param(87, 20, id="13 and 20: seven tokens for nothing, not the 18 behind 20 of the next message"),
        pytest.param(97, 3, id="3 and 20: eight tokens until the next message, not 17 at once"),
        pytest.param(100, 25, id="25 and 20"),
        pytest.param(80, 20, id="both have 20"),
    ],
)
def test_before_that_the_one_that_waits_longest_waits_for_the_fewest_tokens(prompt_tokens: int, first_hop: int) -> None:
    cut = PromptCut()
    cut.says(replica(), ENGINE, 20)
    cut.says(replica(), OTHER, 0)
    assert cut.first_hop(prompt_tokens, 1, None) == first_hop


async def test_an_earlier_answer_decides_for_the_next_sentence_of_a_request() -> None:
    speakers = list[int]()

    async def speaks(first_hop: int, context: Any, sent: int) -> None:
        speakers.append(first_hop)

    async with stack({"token2wav": 2}) as running:
        for script, first_hop, precision in zip(running.scripts["token2wav"], (20, 0), ("new", "old"), strict=True):
            script.first_hop_tokens, script.decode = first_hop, partial(speaks, first_hop)
            script.identity = identity_pb2.EngineIdentity(model_hash="m", backend="b", precision=precision, device="d")
        # At once, so that each replica gets some, and tells.
        await asyncio.gather(*(speak(running, "word", prompt=prompt(97)) for _ in range(6)))
        assert set(speakers) == {0, 20}
        speakers.clear()
        setups = running.scripts["llm"][0].llm_setups
        setups.clear()
        await speak(running, "one two three four", prompt=prompt(97))
        first_hop = speakers[0]  # the other one may be asked for the next sentence as well, and refuses
        assert setups[0].first_message_tokens == 3 + 3
        assert setups[-1].first_message_tokens == (first_hop or 3) + 3
