"""OpenAI's Python SDK: models, voices, every format, streaming, events, asynchronous, errors."""

import asyncio
import base64
import json
import time
from typing import Any

import openai
from calls import Calls, Refused, address
from decoders import FORMATS, check_length, compared, decoded_by_opusdec
from openai import AsyncOpenAI, OpenAI

TEXT = "The train to Berlin leaves at nine, from platform four."
REQUEST: dict[str, Any] = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": TEXT, "extra_body": {"seed": 7}}


def created(client: OpenAI, calls: Calls) -> bytes:
    """Each format in one piece; returns the pcm."""
    pcm = b""
    for name in reversed(FORMATS):
        with calls.tried(f"audio.speech.create, {name}") as found:
            audio = client.audio.speech.create(response_format=name, **REQUEST).content
            pcm = pcm or audio
            found.append(check_length(audio, name, pcm))
            if name == "opus":
                found.append(f"opusdec: {compared(decoded_by_opusdec(audio), name, pcm)}")
    return pcm


def streamed(client: OpenAI, calls: Calls, pcm: bytes) -> None:
    with calls.tried("audio.speech.with_streaming_response.create, iter_bytes"):
        with client.audio.speech.with_streaming_response.create(response_format="pcm", **REQUEST) as answer:
            pieces = list(answer.iter_bytes())
            assert answer.headers["x-sample-rate"] == "24000"
        assert b"".join(pieces) == pcm
        assert len(pieces) > 1, "it came in one piece"


def events(client: OpenAI, calls: Calls, pcm: bytes) -> None:
    for name in FORMATS:
        with calls.tried(f"stream_format sse, iter_lines, {name}") as found:
            with client.audio.speech.with_streaming_response.create(
                response_format=name, stream_format="sse", **REQUEST
            ) as answer:
                lines = [line for line in answer.iter_lines() if line]
            assert all(line.startswith("data: ") for line in lines)
            *data, last = (line.removeprefix("data: ") for line in lines)
            *deltas, done = map(json.loads, data)
            assert (last, done["type"]) == ("[DONE]", "speech.audio.done")
            assert done["usage"].keys() == {"input_tokens", "output_tokens", "total_tokens"}
            assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
            audio = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
            found.append(check_length(audio, name, pcm))


def voices(client: OpenAI, calls: Calls) -> None:
    """A voice made of the server's own speech."""
    text = "This is what my voice sounds like when I read a sentence of some length."
    with calls.tried("audio.voices.create, speech in that voice, audio.voices.delete"):
        sample = client.audio.speech.create(**(REQUEST | {"input": text}), response_format="wav").content
        voice = client.audio.voices.create(
            audio_sample=("sample.wav", sample, "audio/wav"),
            consent="made by the server",
            name="Compatibility",
            extra_body={"transcript": text},
        )
        try:
            assert (voice.object, voice.type, voice.name) == ("audio.voice", "audio_sample", "Compatibility")
            assert abs(voice.created_at - time.time()) < 600
            request = REQUEST | {"voice": {"id": voice.id}}
            assert client.audio.speech.create(**request, response_format="pcm").content
        finally:
            assert client.audio.voices.delete(voice.id).deleted


def errors(client: OpenAI, calls: Calls) -> None:
    with calls.tried("speed 9: BadRequestError"):
        with Refused(openai.BadRequestError) as refusal:
            client.audio.speech.create(speed=9, **REQUEST)
        assert refusal.error.type == "invalid_request_error"
        assert refusal.error.request_id
        assert "speed" in str(refusal.error.body)
    with calls.tried("a voice that does not exist: NotFoundError"):
        with Refused(openai.NotFoundError) as refusal:
            client.audio.speech.create(**(REQUEST | {"voice": "nobody"}))
        assert "nobody" in refusal.error.message


async def asynchronous(url: str, calls: Calls, pcm: bytes) -> None:
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        with calls.tried("AsyncOpenAI, with_streaming_response"):
            async with client.audio.speech.with_streaming_response.create(response_format="pcm", **REQUEST) as answer:
                pieces = [piece async for piece in answer.iter_bytes()]
            assert b"".join(pieces) == pcm
            assert len(pieces) > 1, "it came in one piece"


def main() -> None:
    url, calls = f"{address()}/v1", Calls.of("openai")
    with OpenAI(base_url=url, api_key="none", max_retries=5) as client:
        with calls.tried("models.list, models.retrieve"):
            assert "gpt-4o-mini-tts" in {model.id for model in client.models.list()}
            assert client.models.retrieve("tts-1").id == "tts-1"
        pcm = created(client, calls)
        streamed(client, calls, pcm)
        events(client, calls, pcm)
        voices(client, calls)
        errors(client, calls)
    asyncio.run(asynchronous(url, calls, pcm))
    calls.end()


if __name__ == "__main__":
    main()
