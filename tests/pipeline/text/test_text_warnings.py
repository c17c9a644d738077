"""Warnings, speaking rates and pauses of a text in the orchestrator: reported or played once each,
in their place, even when the frontend is replaced.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cosyserve.v1 import frontend_pb2, profile_pb2, synthesis_pb2
from cosyserve.v1.warning_pb2 import TextWarning
from tests.pipeline.calling import speak
from tests.stacks.calls import refusal
from tests.stacks.scripted_stages import Stack, expected_audio, stack


def warning(name: str, sentence: int) -> TextWarning:
    return TextWarning(kind=TextWarning.KIND_UNREADABLE, message="left out", left_out=[name], sentence=sentence)


def scripted(running: Stack, rates: dict[int, float] | None = None, *, fails: bool = False) -> list[Any]:
    """A frontend with a warning for each word and one behind the last; returns the setups of its
    calls.
    """
    setups: list[Any] = []

    async def analyze(request: Any, context: Any) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
        setups.append(request.setup)
        for index, word in enumerate(request.text.split()):
            rate = (rates or {}).get(index, 0.0)
            sentence = frontend_pb2.Sentence(index=index, token_ids=[len(word)], rate=rate, continues=rate != 0)
            yield frontend_pb2.AnalyzeResponse(sentence=sentence, warnings=[warning(word, index)])
            if fails and len(setups) == 1 and index == 1:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "gone in the middle")
        yield frontend_pb2.AnalyzeResponse(warnings=[warning("end", index + 1)])

    running.scripts["frontend"][0].analysis = analyze
    return setups


@pytest.mark.parametrize("fails", [False, True])
async def test_each_warning_is_reported_once_and_all_again_in_the_summary(running: Stack, fails: bool) -> None:
    setups = scripted(running, fails=fails)
    expected = [warning("one", 0), warning("two", 1), warning("three", 2), warning("end", 3)]
    audio, responses = await speak(running, "one two three", seed=1)
    _, resumed = await speak(running, "one two three", seed=1, start_sample=5_000)
    unary = await running.stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text="one two three", seed=1))
    assert len(setups) == 3 + fails
    assert audio == expected_audio("one two three")
    for answer in (responses, resumed):
        assert [found for response in answer for found in response.warnings] == expected
        assert list(answer[-1].summary.warnings) == expected
    assert list(unary.summary.warnings) == expected


async def test_a_frontend_that_never_stops_warning_is_bounded(running: Stack) -> None:
    async def analyze(request: Any, context: Any) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
        found = [warning(str(number), 0) for number in range(200)]
        yield frontend_pb2.AnalyzeResponse(sentence=frontend_pb2.Sentence(index=0, token_ids=[1]), warnings=found)

    running.scripts["frontend"][0].analysis = analyze
    _, responses = await speak(running, "a", seed=1)
    assert len(responses[-1].summary.warnings) == 50


async def test_a_rate_multiplies_the_speed_and_what_goes_on_has_no_pause_in_front(
    running: Stack,
) -> None:
    setups = scripted(running, {1: 0.75})
    audio, _ = await speak(running, "one two three", seed=1, speed=1.2, sentence_pause_milliseconds=100)
    decoded = running.scripts["token2wav"][0].decode_setups
    assert [setup.speed for setup in setups] == [1.2]
    assert [setup.speed for setup in decoded] == pytest.approx([1.2, 0.9, 1.2])
    assert audio == expected_audio("one two") + bytes(4800) + expected_audio("three")


async def test_the_upstream_profile_has_no_rates(running: Stack) -> None:
    scripted(running, {1: 0.75})
    await refusal(
        speak(running, "one two", profile=profile_pb2.PROFILE_UPSTREAM),
        grpc.StatusCode.INVALID_ARGUMENT,
        "PROFILE_UPSTREAM has only 1.0",
    )


async def test_a_rate_counts_for_the_longest_unary() -> None:
    """Twelve letters are sixty tokens, 2.4 s, and twice that at half the speed."""
    request = synthesis_pb2.SynthesizeUnaryRequest(text="twelveletter", seed=1)
    async with stack(max_unary_seconds=4) as running:
        scripted(running, {0: 0.5})
        with pytest.raises(grpc.aio.AioRpcError, match="the utterance is over 5 s long"):
            await running.stub.SynthesizeUnary(request)
    async with stack(max_unary_seconds=5) as running:
        scripted(running, {0: 0.5})
        assert (await running.stub.SynthesizeUnary(request)).audio


async def test_a_closing_pause_is_played_once_though_the_frontend_is_replaced(running: Stack) -> None:
    calls = 0

    async def analyze(request: Any, context: Any) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
        nonlocal calls
        calls += 1
        pauses = {0: 250, 1: 1_500}
        for index, word in enumerate(request.text.split()):
            sentence = frontend_pb2.Sentence(
                index=index, token_ids=[len(word)], pause_before_milliseconds=pauses.get(index, 0)
            )
            yield frontend_pb2.AnalyzeResponse(sentence=sentence)
        yield frontend_pb2.AnalyzeResponse(closing_pause_milliseconds=100)
        if calls == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone at the very end")

    running.scripts["frontend"][0].analysis = analyze
    audio, responses = await speak(running, "one two three", seed=1)
    resumed, _ = await speak(running, "one two three", seed=1, start_sample=6_001)
    silence = {milliseconds: bytes(48 * milliseconds) for milliseconds in (100, 250, 1_500)}
    one, rest = expected_audio("one"), expected_audio("two three")
    assert calls == 3
    assert audio == silence[250] + one + silence[1_500] + rest + silence[100]
    assert resumed == audio[2 * 6_001 :]
    assert (responses[-1].summary.sentences, responses[-1].summary.audio_seconds) == (3, len(audio) / 48_000)
