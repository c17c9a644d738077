"""The pauses of a text in the orchestrator, against a frontend that fails behind them: silence is
played once, where it belongs.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from cosyserve.v1 import frontend_pb2
from tests.pipeline.calling import speak
from tests.stacks.scripted_stages import Frontend, expected_audio, stack


async def test_a_closing_pause_is_played_once_though_the_frontend_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def analyze(self: Frontend, request: Any, context: Any) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
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

    monkeypatch.setattr(Frontend, "Analyze", analyze)
    async with stack() as running:
        audio, responses = await speak(running, "one two three", seed=1)
        resumed, _ = await speak(running, "one two three", seed=1, start_sample=6_001)
    silence = {milliseconds: bytes(48 * milliseconds) for milliseconds in (100, 250, 1_500)}
    one, rest = expected_audio("one"), expected_audio("two three")
    assert calls == 3
    assert audio == silence[250] + one + silence[1_500] + rest + silence[100]
    assert resumed == audio[2 * 6_001 :]
    assert responses[-1].summary.sentences == 3
    assert responses[-1].summary.audio_seconds == len(audio) / 48_000
