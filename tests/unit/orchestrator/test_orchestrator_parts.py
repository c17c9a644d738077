"""Admission, the first border, and the replayable token stream."""

import asyncio

import pytest

from cosyserve.errors import Overloaded
from services.orchestrator.load_control.admission import Admission
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.speech.token_stream import GenerationTiming, TokenStream
from services.orchestrator.speech.utterance import Sentence, tokens_to_first_border


@pytest.mark.parametrize(
    ("prompt", "first_hop", "border"),
    [
        (0, 1, 25),
        (0, 25, 25),
        (0, 26, 50),
        (20, 1, 5),
        (20, 5, 5),
        (20, 6, 30),
        (25, 1, 25),
        (49, 1, 1),
        (49, 2, 26),
        (30, 100, 120),
    ],
)
def test_first_border(prompt: int, first_hop: int, border: int) -> None:
    assert tokens_to_first_border(prompt, first_hop) == border
    assert (prompt + border) % 25 == 0


def test_admission_gives_each_place_once_and_takes_it_back() -> None:
    admission = Admission(2)
    with admission.admit(), admission.admit():
        with pytest.raises(Overloaded) as caught, admission.admit():
            raise AssertionError("a third stream was let in")
        assert caught.value.retry_after is not None
        assert caught.value.retry_after >= 0.2
    assert admission.active == 0
    with pytest.raises(RuntimeError, match="inside"), admission.admit():
        raise RuntimeError("inside")
    assert admission.active == 0


def test_admission_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Admission(0)


async def test_tokens_are_read_from_the_start_by_every_reader() -> None:
    stream = TokenStream(Sentence(0, (1,)), seed=1)
    stream.extend([1, 2])
    early = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    stream.extend([3])
    late = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    stream.extend([4])
    stream.finish(GenerationTiming(0.0, 0.0, 0.0))
    assert await early == await late == await _all(stream) == [1, 2, 3, 4]


async def _all(stream: TokenStream) -> list[int]:
    return [token async for piece in stream.read() for token in piece]


def test_less_room_than_a_sentence_may_need_is_no_setting() -> None:
    stages = {"listen": "127.0.0.1:0", "frontend": ("a:1",), "llm": ("b:1",), "token2wav": ("c:1",)}
    OrchestratorSettings(**stages, max_waiting_characters=1_000)
    with pytest.raises(ValueError, match="MAX_WAITING_CHARACTERS is 999, allowed are at least 1000"):
        OrchestratorSettings(**stages, max_waiting_characters=999)
