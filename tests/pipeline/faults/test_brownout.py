"""Near its limit the server makes first hops longer, takes fewer Euler steps where it may, says so,
and changes no sample otherwise.
"""

import asyncio
from typing import Any

import grpc
import pytest

from cosyserve.v1 import profile_pb2, synthesis_pb2
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from tests.pipeline.calling import audio_of, hold_back, speak
from tests.pipeline.misbehaving import misbehaving
from tests.stacks.calls import all_of, refusal, until
from tests.stacks.scripted_stages import Stack, expected_audio

NEARLY_FULL: dict[str, Any] = {"max_streams": 4, "brownout_share": 0.5, "brownout_first_hop_tokens": 30}


async def with_others(running: Stack, others: int, text: str, **fields: Any) -> Any:
    """The responses to a request that is served beside so many others."""
    gate = hold_back(running)
    waiting = [asyncio.create_task(speak(running, f"other{number}")) for number in range(others)]
    await until(lambda: running.scripts["token2wav"][0].active == others)
    for setups in (running.scripts["token2wav"][0].decode_setups, running.scripts["llm"][0].llm_setups):
        setups.clear()
    mine = asyncio.create_task(speak(running, text, **fields))
    await until(lambda: running.scripts["token2wav"][0].active == others + 1)
    gate.set()
    await asyncio.gather(*waiting)
    return (await mine)[1]


@pytest.mark.start(**NEARLY_FULL)
@pytest.mark.parametrize(("others", "browned_out"), [(0, False), (1, False), (2, True), (3, True)])
async def test_the_last_places_get_a_longer_first_hop_and_the_same_sound(
    running: Stack, others: int, browned_out: bool
) -> None:
    responses = await with_others(running, others, "word")
    assert audio_of(responses) == expected_audio("word")
    assert responses[-1].summary.browned_out is browned_out
    (setup,) = running.scripts["token2wav"][0].decode_setups
    assert setup.hops.first_hop_tokens == (30 if browned_out else 1)
    (llm_setup,) = running.scripts["llm"][0].llm_setups
    assert llm_setup.first_message_tokens == (50 if browned_out else 25) + 3
    assert (setup.euler_steps, setup.preferred_euler_steps, responses[-1].summary.euler_steps) == (0, 0, 10)


@pytest.mark.start(**NEARLY_FULL)
async def test_a_request_that_says_how_its_first_hop_should_be_keeps_it(running: Stack) -> None:
    responses = await with_others(running, 3, "word", hops=profile_pb2.HopSchedule(first_hop_tokens=10))
    assert running.scripts["token2wav"][0].decode_setups[0].hops.first_hop_tokens == 10
    assert responses[-1].summary.browned_out


@pytest.mark.start(**NEARLY_FULL)
async def test_the_reference_profile_is_untouched(running: Stack) -> None:
    responses = await with_others(running, 3, "word", profile=profile_pb2.PROFILE_UPSTREAM)
    assert running.scripts["token2wav"][0].decode_setups[0].hops.first_hop_tokens == 1
    assert not responses[-1].summary.browned_out


@pytest.mark.start(**NEARLY_FULL)
@pytest.mark.parametrize(("others", "asked"), [(0, 0), (3, 6)])
async def test_fewer_steps_are_asked_for_only_near_the_limit_and_only_where_allowed(
    running: Stack, others: int, asked: int
) -> None:
    await with_others(running, others, "word", least_euler_steps=6)
    assert running.scripts["token2wav"][0].decode_setups[0].preferred_euler_steps == asked


@pytest.mark.start(max_streams=9, brownout_share=0.1)
async def test_a_small_server_has_no_such_places(running: Stack) -> None:
    assert not (await with_others(running, 8, "word"))[-1].summary.browned_out


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"least_euler_steps": 4}, "least_euler_steps is 4, allowed are 5 to 10"),
        ({"euler_steps": 11}, "euler_steps is 11, allowed are 5 to 10"),
        (
            {"least_euler_steps": 6, "profile": profile_pb2.PROFILE_UPSTREAM},
            "PROFILE_UPSTREAM always takes 10, PROFILE_CONTINUOUS may take fewer",
        ),
    ],
)
async def test_what_a_request_may_allow(running: Stack, fields: dict[str, Any], says: str) -> None:
    await refusal(speak(running, "word", **fields), grpc.StatusCode.INVALID_ARGUMENT, says)


async def test_the_steps_taken_are_stated_and_a_resumed_request_gets_the_same() -> None:
    """With real services around the fake engines, whose loudness depends on the number of steps."""
    async with misbehaving(max_streams=2, brownout_share=1.0) as stub:

        async def speech(**fields: Any) -> list[synthesis_pb2.SynthesizeResponse]:
            request = synthesis_pb2.SynthesizeRequest(text="one two", seed=7, **fields)
            return await all_of(stub.Synthesize(request, timeout=30))

        ten, fewer = await speech(), await speech(least_euler_steps=6)
        header = fewer[0].header
        assert (ten[0].header.euler_steps, header.euler_steps, fewer[-1].summary.euler_steps) == (10, 6, 6)
        assert audio_of(ten) != audio_of(fewer)
        resumed = await speech(euler_steps=header.euler_steps, start_sample=9_600, engine=header.engine)
        assert audio_of(resumed) == audio_of(fewer)[19_200:]


async def test_an_engine_that_always_takes_ten_says_so_or_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = load_backend("fake", EngineSettings()).decoders
    monkeypatch.setattr(type(next(iter(decoders.values()))), "takes_fewer_steps", False)
    async with misbehaving(max_streams=2, brownout_share=1.0) as stub:
        request = synthesis_pb2.SynthesizeRequest(text="one", seed=7, least_euler_steps=6)
        assert (await all_of(stub.Synthesize(request, timeout=30)))[-1].summary.euler_steps == 10
        exact = synthesis_pb2.SynthesizeRequest(text="one", seed=7, euler_steps=6)
        await refusal(
            all_of(stub.Synthesize(exact, timeout=30)),
            grpc.StatusCode.FAILED_PRECONDITION,
            "euler_steps is 6; fake takes 10 in profile continuous",
        )
