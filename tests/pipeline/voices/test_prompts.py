"""What a request brings along (mode, instruction, recording) as it reaches the stages: the right
fields, also after a failure; and nothing goes on when its caller leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from cosyserve.errors import Overloaded
from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import synthesis_pb2, voice_pb2
from tests.pipeline.calling import (
    IMPATIENT,
    TEXT,
    abort_once,
    all_idle,
    audio_of,
    busy,
    hang,
    hang_up,
    hook,
    speak,
    spoken,
    unary,
)
from tests.stacks.calls import all_of, conversation, refusal, refused
from tests.stacks.scripted_stages import Stack, expected_audio, prompted_voice

pb = synthesis_pb2
ANNA = prompted_voice("anna", [1, 2], [3, 4, 5])
UNTRANSCRIBED = prompted_voice("anna", [], [3, 4, 5])
PROMPT = voice_pb2.PromptRecording(audio=bytes([9, 8, 7, 6]), transcript="three words here", language_code="en")
MODES: list[tuple[dict[str, Any], list[int], list[int], list[int]]] = [
    # request, text and speech to the language model, speech to the decoder
    ({}, [1, 2], [3, 4, 5], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_ZERO_SHOT}, [1, 2], [3, 4, 5], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, [], [], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_SFT}, [], [], []),
    ({"instruction": " very slowly "}, [4, 6, 999], [], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_INSTRUCT, "instruction": "sadly"}, [5, 999], [], [3, 4, 5]),
    ({"prompt": PROMPT}, [0, 1, 2], [9, 8, 7, 6], [9, 8, 7, 6]),
    ({"prompt": PROMPT, "prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, [], [], [9, 8, 7, 6]),
    ({"prompt": PROMPT, "instruction": "sadly"}, [5, 999], [], [9, 8, 7, 6]),
    ({"prompt": PROMPT, "prompt_mode": pb.PROMPT_MODE_SFT}, [], [], []),
]


def check_shown(running: Stack, text: list[int], heard: list[int], decoded: list[int]) -> None:
    """What every sentence of the last request sent to the stages."""
    llm = [setup for script in running.scripts["llm"] for setup in script.llm_setups]
    sound = [setup for script in running.scripts["token2wav"] for setup in script.decode_setups]
    assert {(tuple(setup.prompt_text_ids), tuple(setup.prompt_speech_tokens)) for setup in llm} == {
        (tuple(text), tuple(heard))
    }
    assert {tuple(setup.prompt_speech_tokens) for setup in sound} == {tuple(decoded)}
    for setup in sound:
        assert len(setup.prompt_mel) == len(decoded) * 2 * 80 * 4
        assert len(setup.speaker_embedding) == 192 * 4
        assert bool(setup.voice_hash) == bool(decoded)
    # The first border of the decoder's grid behind its own prompt, and the three tokens of
    # look-ahead.
    assert {setup.first_message_tokens for setup in llm} == {25 - len(decoded) + 3}


def aborting(status: grpc.StatusCode, text: str) -> Callable[[Any], Awaitable[None]]:
    """A frontend that refuses to read."""

    async def read(context: Any) -> None:
        await context.abort(status, text)

    return read


@pytest.mark.parametrize(("fields", "text", "heard", "decoded"), MODES)
@pytest.mark.start(voice=ANNA)
async def test_each_mode_shows_each_network_what_it_is_to_see(
    running: Stack, fields: dict[str, Any], text: list[int], heard: list[int], decoded: list[int]
) -> None:
    responses = await spoken(running, seed=1, **fields)
    check_shown(running, text, heard, decoded)
    assert responses[0].header.voice == ("recording-0" if "prompt" in fields else "anna")
    if "prompt" in fields:
        assert running.scripts["frontend"][0].recordings == [PROMPT]


@pytest.mark.start(voice=ANNA)
async def test_the_unary_call_takes_them_too(running: Stack) -> None:
    answer = await unary(running, prompt=PROMPT, instruction="sadly")
    assert (answer.audio, answer.header.voice) == (expected_audio(TEXT), "recording-0")
    check_shown(running, [5, 999], [], [9, 8, 7, 6])


@pytest.mark.start(voice=ANNA)
async def test_a_text_that_is_being_written_takes_them_too(running: Stack) -> None:
    request = pb.SynthesizeRequest(instruction="sadly", sentence_pause_milliseconds=0)
    setup = pb.StreamingSynthesizeSetup(request=request)
    messages = [pb.StreamingSynthesizeRequest(setup=setup), pb.StreamingSynthesizeRequest(text=TEXT)]
    streamed = await conversation(running.stub.StreamingSynthesize(), messages)
    assert audio_of(streamed) == expected_audio(TEXT)
    check_shown(running, [5, 999], [], [3, 4, 5])


@pytest.mark.parametrize("stage", ["llm", "token2wav"])
@pytest.mark.parametrize(("fields", "text", "heard", "decoded"), [MODES[0], MODES[3], MODES[8]])
@pytest.mark.start({"llm": 2, "token2wav": 2}, voice=ANNA, **IMPATIENT)
async def test_a_takeover_is_shown_the_same(
    running: Stack, stage: str, fields: dict[str, Any], text: list[int], heard: list[int], decoded: list[int]
) -> None:
    hook(running, stage, abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 10 if stage == "llm" else 9_600))
    responses = await spoken(running, seed=1, **fields)
    assert responses[-1].summary.resumptions == 1
    check_shown(running, text, heard, decoded)


@pytest.mark.parametrize("fields", [mode[0] for mode in MODES])
@pytest.mark.start(voice=ANNA)
async def test_a_resumed_request_is_heard_to_its_end(running: Stack, fields: dict[str, Any]) -> None:
    whole, responses = await speak(running, seed=1, **fields)
    rest, _ = await speak(running, seed=1, start_sample=30_001, engine=responses[0].header.engine, **fields)
    assert rest == whole[2 * 30_001 :]


@pytest.mark.start({"frontend": 2}, **IMPATIENT)
async def test_a_frontend_that_dies_over_a_recording_is_replaced(running: Stack) -> None:
    gone = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 0)
    for script in running.scripts["frontend"]:
        script.read = lambda context: gone(context, 0)
    await spoken(running, prompt=PROMPT, instruction="sadly")


@pytest.mark.start({"frontend": 2}, **IMPATIENT)
async def test_a_frontend_of_the_release_before_is_passed_over(running: Stack) -> None:
    unknown = aborting(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    running.scripts["frontend"][0].read = unknown
    await spoken(running, prompt=PROMPT)
    running.scripts["frontend"][1].read = unknown
    await refusal(speak(running, prompt=PROMPT), grpc.StatusCode.FAILED_PRECONDITION, "Method not found!")


@pytest.mark.start(**IMPATIENT)
async def test_a_recording_may_take_longer_than_any_other_answer(running: Stack) -> None:
    running.scripts["frontend"][0].read = lambda context: asyncio.sleep(1.2)
    spoken_at_last = await spoken(running, "word", prompt=PROMPT)
    assert spoken_at_last[-1].summary.first_sound.frontend > 1_000
    converted = await all_of(running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc")))
    assert converted[-1].summary.first_sound.frontend > 1_000


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        (
            {"prompt_mode": pb.PROMPT_MODE_ZERO_SHOT},
            grpc.StatusCode.FAILED_PRECONDITION,
            "voice 'anna' has no transcript",
        ),
        ({"voice": "nobody", "instruction": "sadly"}, grpc.StatusCode.NOT_FOUND, "no voice 'nobody'"),
    ],
)
@pytest.mark.start(voice=UNTRANSCRIBED)
async def test_what_the_voice_lacks_is_reported(
    running: Stack, fields: dict[str, Any], status: grpc.StatusCode, text: str
) -> None:
    await refusal(speak(running, **fields), status, text)
    await all_idle(running)
    assert not running.scripts["llm"][0].calls


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "the recording is silent"),
        (grpc.StatusCode.FAILED_PRECONDITION, "no speech tokenizer"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "4 of 4 recordings are being read"),
    ],
)
@pytest.mark.parametrize("call", ["prompt", "instruction", "convert"])
async def test_what_the_frontend_refuses_the_caller_reads(
    running: Stack, call: str, status: grpc.StatusCode, text: str
) -> None:
    running.scripts["frontend"][0].read = aborting(status, text)
    answers = {
        "prompt": lambda: speak(running, prompt=PROMPT),
        "instruction": lambda: speak(running, instruction="sadly"),
        "convert": lambda: all_of(running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc"))),
    }
    await refusal(answers[call](), status, text)
    await all_idle(running)


async def test_the_hint_when_to_come_back_is_passed_on(running: Stack) -> None:
    async def full(context: Any) -> None:
        raise Overloaded("4 of 4 recordings are being read", retry_after=2.0)

    running.scripts["frontend"][0].read = full
    assert retry_delay(await refusal(speak(running, prompt=PROMPT))) == 2.0


@pytest.mark.parametrize("call", ["prompt", "convert"])
@pytest.mark.start(voice=ANNA)
async def test_hanging_up_stops_the_reading(running: Stack, call: str) -> None:
    running.scripts["frontend"][0].read = hang
    waiting: Any = (
        running.stub.Synthesize(pb.SynthesizeRequest(text=TEXT, prompt=PROMPT))
        if call == "prompt"
        else running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc"))
    )
    await hang_up(running, waiting, busy(running, "frontend"))


async def test_the_largest_recordings_come_through(running: Stack) -> None:
    await refusal(
        speak(running, prompt=voice_pb2.PromptRecording(audio=bytes(10_485_761))), grpc.StatusCode.INVALID_ARGUMENT
    )
    running.scripts["frontend"][0].read = aborting(grpc.StatusCode.INVALID_ARGUMENT, "seen")
    largest = bytes(10_485_760)
    spoken = running.stub.Synthesize(pb.SynthesizeRequest(text="a", prompt={"audio": largest}))
    converted = running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=largest, prompt={"audio": largest}))
    for call in (spoken, converted):
        assert await refused(call.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "seen")
