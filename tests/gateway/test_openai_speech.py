"""POST /v1/audio/speech over real sockets and real gRPC: every format, events, failures before and
after the first audio, callers that hang up.
"""

import asyncio
import base64
import io
import json
import logging
from collections.abc import Mapping
from typing import Any
from unittest.mock import AsyncMock, Mock

import av
import grpc
import httpx2
import pytest
import soundfile

from cosyserve.audio.compressed import FileFormat
from cosyserve.audio.encoding import Encoding
from cosyserve.client.types import Header
from services.gateway.speech.speaking import Utterance
from services.gateway.speech.voice_names import VoiceNames
from tests.gateway.conversing import spoken
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang_after_some, hold_back, hook
from tests.stacks.calls import until
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack, expected_audio

PATH = "/v1/audio/speech"
FORMATS = [each for each in FileFormat if each is not FileFormat.PCM]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tts-1", "input": TEXT, "voice": "", "seed": 7, "onset": "natural", **fields}


async def speak(served: Gateway, **fields: Any) -> httpx2.Response:
    return await served.http.post(PATH, json=body(**fields))


async def test_pcm_is_the_speech_and_headers_say_what_it_is(served: Gateway) -> None:
    response = await speak(served, response_format="pcm")
    assert response.status_code == 200
    assert spoken(response.content) == expected_audio(TEXT)
    headers = response.headers
    assert (headers["x-sample-rate"], headers["x-seed"], headers["x-voice"]) == ("24000", "7", "anna")
    assert headers["x-synthetic-audio"] == "true"
    assert headers["content-type"] == "audio/pcm"
    assert "content-length" not in headers


@pytest.mark.parametrize("file_format", FORMATS)
async def test_every_format_decodes_to_the_same_length(served: Gateway, file_format: FileFormat) -> None:
    """Decoded by libsndfile, where it reads streams of that format, else by FFmpeg."""
    response = await speak(served, response_format=file_format)
    pcm = await speak(served, response_format="pcm")
    if file_format in (FileFormat.AAC, FileFormat.FLAC):
        with av.open(io.BytesIO(response.content)) as container:
            frames = list(container.decode(audio=0))
        seconds = sum(frame.samples / frame.sample_rate for frame in frames)
    else:
        with soundfile.SoundFile(io.BytesIO(response.content)) as file:
            # The header of a stream does not know the length.
            seconds = len(file.read(1 << 24)) / file.samplerate
    wanted = len(pcm.content) / 48_000
    # An MP3 or AAC stream begins with the codec's delay and ends with a whole frame.
    assert wanted - 1e-6 <= seconds <= wanted + (0.1 if file_format in (FileFormat.MP3, FileFormat.AAC) else 1e-6)
    assert response.headers["content-type"] == file_format.media_type


@pytest.mark.parametrize("file_format", [FileFormat.MP3, FileFormat.OPUS, FileFormat.AAC, FileFormat.FLAC])
async def test_files_say_that_the_audio_is_synthetic(served: Gateway, file_format: FileFormat) -> None:
    response = await speak(served, response_format=file_format)
    with av.open(io.BytesIO(response.content)) as container:
        metadata = {**container.metadata, **container.streams.audio[0].metadata}
    assert "synthetic audio" in {key.lower(): value for key, value in metadata.items()}["comment"]


def events_of(response: httpx2.Response) -> list[str]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    return [block.removeprefix("data: ") for block in blocks]


@pytest.mark.parametrize("file_format", [FileFormat.PCM, FileFormat.MP3, FileFormat.WAV])
async def test_events_carry_the_same_file(served: Gateway, file_format: FileFormat) -> None:
    whole = await speak(served, response_format=file_format)
    events = events_of(await speak(served, response_format=file_format, stream_format="sse"))
    assert events.pop() == "[DONE]"
    *deltas, done = map(json.loads, events)
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(delta["audio"]) for delta in deltas) == whole.content
    assert done["type"] == "speech.audio.done"
    assert done["usage"]["output_tokens"] == done["usage"]["total_tokens"] > 0


async def test_audio_begins_before_synthesis_ends(served: Gateway, running: Stack) -> None:
    async def stop_in_the_middle(context: Any, sent: int) -> None:
        if sent >= 20 * 960:
            await asyncio.Event().wait()

    hook(running, "token2wav", stop_in_the_middle)
    async with served.http.stream("POST", PATH, json=body(response_format="mp3")) as response:
        received = 0
        pieces = response.aiter_raw()
        while received < 2_000:
            received += len(await anext(pieces))
    await all_idle(running)


async def test_unknown_and_null_fields_are_ignored(served: Gateway) -> None:
    response = await speak(
        served, response_format="pcm", stream=True, language="English", instructions=None, speed=None, user="x"
    )
    assert spoken(response.content) == expected_audio(TEXT)


async def test_a_limit_of_sentence_length_reaches_the_frontend(served: Gateway, running: Stack) -> None:
    assert (await speak(served, response_format="pcm", max_sentence_characters=40)).status_code == 200
    assert running.scripts["frontend"][0].text_setups[0].max_sentence_characters == 40


@pytest.mark.start(brownout_share=1.0)
async def test_fewer_euler_steps_are_asked_for_where_the_caller_allows_them(served: Gateway, running: Stack) -> None:
    response = await speak(served, response_format="pcm", least_euler_steps=6)
    setups = running.scripts["token2wav"][0].decode_setups
    assert {setup.preferred_euler_steps for setup in setups} == {6}
    assert "x-euler-steps" not in response.headers, "the decoder of this stack takes ten"


def test_the_headers_say_how_many_euler_steps_were_taken_where_they_were_fewer_than_ten() -> None:
    def headers(steps: int) -> Mapping[str, str]:
        header = Header(7, "anna", Encoding.LINEAR16, 24_000, "continuous", "fake", euler_steps=steps)
        return Utterance(Mock(header=header, warnings=[])).headers()

    assert headers(6)["x-euler-steps"] == "6"
    assert "x-euler-steps" not in headers(10)


async def test_instructions_reach_the_model(served: Gateway, running: Stack) -> None:
    response = await speak(served, response_format="pcm", instructions="speak very calmly")
    assert response.status_code == 200
    assert running.scripts["frontend"][0].calls.count("read") == 1
    assert "x-warnings" not in response.headers


async def test_a_model_without_instructions_speaks_without_them_and_says_so(served: Gateway, running: Stack) -> None:
    async def refuse(context: Any) -> None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this model follows no instructions")

    running.scripts["frontend"][0].read = refuse
    response = await speak(served, response_format="pcm", instructions="speak very calmly")
    assert spoken(response.content) == expected_audio(TEXT)
    assert "instructions were ignored" in response.headers["x-warnings"]


@pytest.mark.parametrize(
    ("fields", "status", "param", "words"),
    [
        ({"input": ""}, 400, None, "nothing to speak"),
        ({"voice": "nobody"}, 404, None, "nobody"),
        ({"voice": {"id": "nobody"}}, 404, None, "nobody"),
        ({"speed": 9}, 400, None, "0.5 to 2.0"),
        ({"speed": "fast"}, 400, "speed", "fast"),
        ({"response_format": "ogg"}, 400, "response_format", "'mp3'"),
        ({"response_format": "opus", "sample_rate": 44_100}, 400, None, "48000"),
        ({"sample_rate": 7}, 400, "sample_rate", "8000"),
        ({"max_sentence_characters": 9}, 400, None, "max_sentence_characters is 9, allowed are 10 to 20000"),
        ({"least_euler_steps": 4}, 400, None, "least_euler_steps is 4, allowed are 5 to 10"),
        ({"least_euler_steps": 11}, 400, "least_euler_steps", "10"),
        ({"seed": -1}, 400, "seed", "-1"),
        ({"language": "!"}, 400, None, "language"),
    ],
)
async def test_refusals_have_a_status_and_an_error_object(
    served: Gateway, fields: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    response = await speak(served, **fields)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert words in error["message"]
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'"x"', b"\xff\xfe", b"{}", b'{"input": "\\ud800"}'])
async def test_bodies_of_another_form_are_refused(served: Gateway, content: bytes) -> None:
    response = await served.http.post(PATH, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.start(max_streams=1)
async def test_one_too_many_is_told_when_to_come_back(served: Gateway, running: Stack) -> None:
    gate = hold_back(running)
    held = asyncio.create_task(speak(served, response_format="pcm"))
    await busy(running, "token2wav")
    refused = await speak(served, response_format="pcm")
    gate.set()
    assert (await held).status_code == 200
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.headers["x-should-retry"] == "true"
    assert int(refused.headers["retry-after-ms"]) >= 200
    assert int(refused.headers["retry-after"]) >= 1
    assert "server at" not in refused.text  # where the speech service is, is not for callers


async def test_without_a_speech_service_requests_are_unavailable(served: Gateway, running: Stack) -> None:
    await running.kill("llm", 0)
    while (await served.http.get("/readyz")).status_code != 503:
        await asyncio.sleep(0.05)
    refused = await speak(served)
    assert (await served.http.get("/healthz")).status_code == 200
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "server_error"
    assert refused.headers["x-should-retry"] == "true"


async def test_a_failure_before_the_first_audio_is_a_status(served: Gateway, running: Stack) -> None:
    hook(running, "frontend", abort_before_anything)
    response = await speak(served)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"


async def abort_before_anything(context: Any) -> None:
    await context.abort(grpc.StatusCode.INTERNAL, "broken")


async def test_what_nobody_expected_is_an_error_object_and_in_the_log(
    served: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(VoiceNames, "voice_of", AsyncMock(side_effect=RuntimeError("a secret")))
    response = await speak(served)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert response.headers["x-request-id"] in caplog.text
    assert "a secret" not in response.text
    assert "RuntimeError: a secret" in caplog.text


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_a_later_failure_cuts_the_body(
    served: Gateway, running: Stack, stream_format: str, caplog: pytest.LogCaptureFixture
) -> None:
    received = b""

    async def receive(served: Gateway) -> None:
        nonlocal received
        fields = body(response_format="pcm", stream_format=stream_format)
        async with served.http.stream("POST", PATH, json=fields) as response:
            assert response.status_code == 200
            async for piece in response.aiter_raw():
                received += piece

    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", 20 * 960))
    with pytest.raises(httpx2.RemoteProtocolError):
        await receive(served)
    assert received
    assert b"[DONE]" not in received
    assert (b'"type":"error"' in received) == (stream_format == "sse")
    await until(lambda: not served.server.server_state.tasks)
    assert caplog.text.count("an answer was cut") == 1
    # asyncio may log what gRPC has left of an earlier test's event loop.
    ours = [record for record in caplog.records if record.name.startswith(("uvicorn", "services"))]
    assert not [record.getMessage() for record in ours if record.levelno >= logging.ERROR]


async def test_a_caller_that_hangs_up_leaves_every_stage_idle_at_once(served: Gateway, running: Stack) -> None:
    hook(running, "token2wav", hang_after_some)
    async with served.http.stream("POST", PATH, json=body(response_format="pcm")) as response:
        await anext(response.aiter_raw())
    begun = asyncio.get_running_loop().time()
    await all_idle(running)
    seconds = asyncio.get_running_loop().time() - begun
    assert seconds < 2, "the stages go on although nobody listens"


async def test_a_caller_that_hangs_up_before_the_first_audio_cancels_too(served: Gateway, running: Stack) -> None:
    hold_back(running)
    asking = asyncio.create_task(speak(served, response_format="pcm"))
    await busy(running, "token2wav")
    asking.cancel()
    await asyncio.wait((asking,))
    await all_idle(running)
