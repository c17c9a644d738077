"""What a request brings along (mode, instruction, recording) as it reaches the stages: the right
fields, also after a failure; and nothing goes on when its caller leaves."""

import asyncio
from typing import Any

import grpc
import pytest
from cosyserve.rpc.calls import retry_delay

from cosyserve.errors import Overloaded
from cosyserve.v1 import synthesis_pb2, voice_pb2
from tests.pipeline.calling import IMPATIENT, TEXT, abort_once, all_idle, busy, hang, speak, status_of
from tests.stacks.scripted_stages import Stack, expected_audio, prompted_voice, stack

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
    """What every sentence of the last request was told."""
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


@pytest.mark.parametrize(("fields", "text", "heard", "decoded"), MODES)
async def test_each_mode_shows_each_network_what_it_is_to_see(
    fields: dict[str, Any], text: list[int], heard: list[int], decoded: list[int]
) -> None:
    async with stack(voice=ANNA) as running:
        audio, responses = await speak(running, seed=1, **fields)
        assert audio == expected_audio(TEXT)
        check_shown(running, text, heard, decoded)
        assert responses[0].header.voice == ("recording-0" if "prompt" in fields else "anna")
        if "prompt" in fields:
            assert running.scripts["frontend"][0].recordings == [PROMPT]


async def test_the_other_calls_take_them_too() -> None:
    async with stack(voice=ANNA) as running:
        unary = await running.stub.SynthesizeUnary(
            pb.SynthesizeUnaryRequest(text=TEXT, prompt=PROMPT, instruction="sadly", sentence_pause_milliseconds=0)
        )
        assert unary.audio == expected_audio(TEXT)
        assert unary.header.voice == "recording-0"
        check_shown(running, [5, 999], [], [9, 8, 7, 6])
    async with stack(voice=ANNA) as running:

        async def messages() -> Any:
            request = pb.SynthesizeRequest(instruction="sadly", sentence_pause_milliseconds=0)
            yield pb.StreamingSynthesizeRequest(setup=pb.StreamingSynthesizeSetup(request=request))
            yield pb.StreamingSynthesizeRequest(text=TEXT)

        streamed = [response.audio async for response in running.stub.StreamingSynthesize(messages())]
        assert b"".join(streamed) == expected_audio(TEXT)
        check_shown(running, [5, 999], [], [3, 4, 5])


@pytest.mark.parametrize("stage", ["llm", "token2wav"])
@pytest.mark.parametrize(("fields", "text", "heard", "decoded"), [MODES[0], MODES[3], MODES[8]])
async def test_a_takeover_is_shown_the_same(
    stage: str, fields: dict[str, Any], text: list[int], heard: list[int], decoded: list[int]
) -> None:
    async with stack({"llm": 2, "token2wav": 2}, voice=ANNA, **IMPATIENT) as running:
        gone = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 10 if stage == "llm" else 9_600)
        for script in running.scripts[stage]:
            setattr(script, "generate" if stage == "llm" else "decode", gone)
        audio, responses = await speak(running, seed=1, **fields)
        assert audio == expected_audio(TEXT)
        assert responses[-1].summary.resumptions == 1
        check_shown(running, text, heard, decoded)


@pytest.mark.parametrize("fields", [mode[0] for mode in MODES])
async def test_a_resumed_request_is_heard_to_its_end(fields: dict[str, Any]) -> None:
    async with stack(voice=ANNA) as running:
        whole, responses = await speak(running, seed=1, **fields)
        rest, _ = await speak(running, seed=1, start_sample=30_001, engine=responses[0].header.engine, **fields)
    assert rest == whole[2 * 30_001 :]


async def test_a_frontend_that_dies_over_a_recording_is_replaced() -> None:
    async with stack({"frontend": 2}, **IMPATIENT) as running:
        gone = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 0)

        async def read(context: Any) -> None:
            await gone(context, 0)

        for script in running.scripts["frontend"]:
            script.read = read
        audio, _ = await speak(running, prompt=PROMPT, instruction="sadly")
    assert audio == expected_audio(TEXT)


async def test_a_frontend_of_the_release_before_is_passed_over() -> None:
    async with stack({"frontend": 2}, **IMPATIENT) as running:

        async def unknown(context: Any) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        running.scripts["frontend"][0].read = unknown
        assert (await speak(running, prompt=PROMPT))[0] == expected_audio(TEXT)
        running.scripts["frontend"][1].read = unknown
        error = await status_of(running, prompt=PROMPT)
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "Method not found!" in error.details()


async def test_a_recording_may_take_longer_than_any_other_answer() -> None:
    async with stack(**IMPATIENT) as running:

        async def slowly(context: Any) -> None:
            await asyncio.sleep(1.2)

        running.scripts["frontend"][0].read = slowly
        audio, responses = await speak(running, "word", prompt=PROMPT)
        assert audio == expected_audio("word")
        assert responses[-1].summary.first_sound.frontend > 1_000
        converted = [each async for each in running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc"))]
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
async def test_what_the_voice_lacks_is_told(fields: dict[str, Any], status: grpc.StatusCode, text: str) -> None:
    async with stack(voice=UNTRANSCRIBED) as running:
        error = await status_of(running, **fields)
        await all_idle(running)
        assert not running.scripts["llm"][0].calls
    assert error.code() == status
    assert text in error.details()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "the recording is silent"),
        (grpc.StatusCode.FAILED_PRECONDITION, "no speech tokenizer"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "4 of 4 recordings are being read"),
    ],
)
@pytest.mark.parametrize("call", ["prompt", "instruction", "convert"])
async def test_what_the_frontend_refuses_the_caller_reads(call: str, status: grpc.StatusCode, text: str) -> None:
    async with stack() as running:

        async def refuse(context: Any) -> None:
            await context.abort(status, text)

        running.scripts["frontend"][0].read = refuse
        if call == "convert":
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc")):
                    pass
            error = caught.value
        else:
            error = await status_of(running, **({"prompt": PROMPT} if call == "prompt" else {"instruction": "sadly"}))
        await all_idle(running)
    assert error.code() == status
    assert text in error.details()


async def test_the_hint_when_to_come_back_is_passed_on() -> None:
    async with stack() as running:

        async def full(context: Any) -> None:
            raise Overloaded("4 of 4 recordings are being read", retry_after=2.0)

        running.scripts["frontend"][0].read = full
        error = await status_of(running, prompt=PROMPT)
    assert retry_delay(error) == 2.0


@pytest.mark.parametrize("call", ["prompt", "convert"])
async def test_hanging_up_stops_the_reading(call: str) -> None:
    async with stack(voice=ANNA) as running:
        running.scripts["frontend"][0].read = hang
        waiting: Any = (
            running.stub.Synthesize(pb.SynthesizeRequest(text=TEXT, prompt=PROMPT))
            if call == "prompt"
            else running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc"))
        )
        reading = asyncio.create_task(waiting.read())
        await busy(running, "frontend")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await all_idle(running)


async def test_the_largest_recordings_come_through() -> None:
    async with stack() as running:
        error = await status_of(running, prompt=voice_pb2.PromptRecording(audio=bytes(10_485_761)))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT

        async def refuse(context: Any) -> None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "seen")

        running.scripts["frontend"][0].read = refuse
        largest = bytes(10_485_760)
        spoken = running.stub.Synthesize(pb.SynthesizeRequest(text="a", prompt={"audio": largest}))
        converted = running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=largest, prompt={"audio": largest}))
        for call in (spoken, converted):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.details() == "seen"
