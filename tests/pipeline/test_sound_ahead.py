"""The next sentence is decoded before its turn: what is heard, and what becomes of it when
something fails.
"""

import asyncio
from typing import Any

import grpc
import pytest

from cosyserve.v1 import profile_pb2, synthesis_pb2, token2wav_pb2
from services.orchestrator.decode_ahead import LISTENER_SECONDS
from tests.pipeline.calling import hang_up, hold_back, speak, spoken
from tests.stacks.calls import until
from tests.stacks.scripted_stages import Stack

SHORT = "one two three four"
LONG = "a-word-that-takes-several-seconds-to-be-spoken next"


async def _begun(running: Stack, sentences: int) -> None:
    await until(lambda: len(running.scripts["token2wav"][0].decode_setups) >= sentences)


async def test_a_short_sentence_and_the_next_are_decoded_at_the_same_time(running: Stack) -> None:
    gate, setups = hold_back(running), running.scripts["token2wav"][0].decode_setups
    speaking = asyncio.create_task(spoken(running, SHORT, seed=3))
    await _begun(running, 2)
    gate.set()
    await speaking
    assert setups[0].utterance == setups[1].utterance != 0
    assert [setup.sentence_index for setup in setups] == [0, 1, 2, 3]


async def test_requests_have_numbers_of_their_own(running: Stack) -> None:
    for _ in range(2):
        await speak(running, "one", seed=3)
    assert len({setup.utterance for setup in running.scripts["token2wav"][0].decode_setups}) == 2


@pytest.mark.parametrize(
    ("text", "profile"), [(LONG, profile_pb2.PROFILE_CONTINUOUS), (SHORT, profile_pb2.PROFILE_UPSTREAM)]
)
async def test_the_next_sentence_waits_behind_a_long_one_and_in_the_references_profile(
    running: Stack, text: str, profile: profile_pb2.Profile
) -> None:
    """While the listener has more than `LISTENER_SECONDS` left to play, nothing is gained by an
    early beginning; and PROFILE_UPSTREAM keeps the order of the reference.
    """
    assert len(LONG.split()[0]) / 5 > LISTENER_SECONDS + 1
    gate, setups = hold_back(running), running.scripts["token2wav"][0].decode_setups
    speaking = asyncio.create_task(spoken(running, text, seed=3, profile=profile))
    await _begun(running, 1)
    await asyncio.sleep(0.3)
    begun = len(setups)
    gate.set()
    await speaking
    assert begun == 1


@pytest.mark.start(attempts=1)
async def test_a_sentence_that_is_refused_before_its_turn_is_decoded_at_its_turn(running: Stack) -> None:
    script, gate, refused = running.scripts["token2wav"][0], hold_back(running), asyncio.Event()

    async def refuse_the_early_one(setup: token2wav_pb2.DecodeSetup, context: Any) -> None:
        if setup.sentence_index == 1 and not refused.is_set():
            refused.set()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "out of order")

    script.begin_decode = refuse_the_early_one
    speaking = asyncio.create_task(spoken(running, "one two", seed=3))
    await asyncio.wait_for(refused.wait(), 5)
    await asyncio.sleep(0.1)
    gate.set()
    await speaking
    assert [setup.sentence_index for setup in script.decode_setups].count(1) == 2


@pytest.mark.parametrize("resumed", [0, 15_000])
async def test_a_resumed_request_hears_the_same(running: Stack, resumed: int) -> None:
    await spoken(running, SHORT, seed=3, start_sample=resumed)


async def test_hanging_up_ends_the_sentence_that_was_begun_early(running: Stack) -> None:
    hold_back(running)
    call = running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=SHORT))
    await hang_up(running, call, until(lambda: running.scripts["token2wav"][0].active == 2))


@pytest.mark.parametrize(
    ("onset", "kept_back"),
    [(synthesis_pb2.ONSET_TRIMMED, [False, False, False, True]), (synthesis_pb2.ONSET_NATURAL, [False] * 4)],
)
async def test_the_decoder_learns_where_a_pause_may_be_the_end_of_the_utterance(
    running: Stack, onset: synthesis_pb2.Onset, kept_back: list[bool]
) -> None:
    await spoken(running, SHORT, seed=3, onset=onset)
    setups = running.scripts["token2wav"][0].decode_setups
    assert [setup.withholds_silence for setup in setups] == kept_back
