"""`python every_call.py HOST:PORT NAME`: every call of the public service, by the client of the
tree that PYTHONPATH names, and what came of each as JSON. NAME: of the voice that it makes.

Only what the client of the older release has, too: it runs with either.
"""

import asyncio
import hashlib
import io
import json
import sys
import wave
from collections.abc import AsyncIterator
from typing import Any

import grpc

from cosyserve.audio.encoding import Encoding
from cosyserve.client import AsyncClient
from cosyserve.client.types import Prompt
from cosyserve.errors import NotFound
from cosyserve.v1 import info_pb2, info_pb2_grpc

TEXT = "The 3 boats came home at 7:30 p.m., all of them."
DOCUMENT = '<speak>Wait.<break time="300ms"/><prosody rate="fast">Not so fast!</prosody></speak>'
SEED = 11


async def every_call(address: str, name: str) -> dict[str, Any]:
    """By call: digests of samples, ids of voices, and what else answers say."""
    found: dict[str, Any] = {}
    async with AsyncClient(address) as client:

        async def spoken(call: str, speech: Any) -> bytes:
            async with speech:
                audio: bytes = await speech.read()
            words = [(word.text, round(word.start, 6), word.sentence) for word in speech.words]
            found[call] = [speech.header.engine, digest(audio), words, speech.summary.sentences]
            return audio

        audio = await spoken("Synthesize", client.synthesize(TEXT, seed=SEED))
        telephone = {"speed": 1.25, "sample_rate": 8000, "encoding": Encoding.MULAW, "sentence_pause_milliseconds": 50}
        await spoken("Synthesize, telephone", client.synthesize(TEXT, seed=SEED, **telephone))
        await spoken("Synthesize, document", client.synthesize(DOCUMENT, seed=SEED))
        await spoken("Synthesize, upstream", client.synthesize("As it was.", seed=SEED, profile="upstream"))
        respelt = client.synthesize("Ask cosyserve.", seed=SEED, pronunciations={"cosyserve": "cozy serve"})
        await spoken("Synthesize, pronunciation", respelt)
        for mode in ("sentences", "tokens"):
            written = client.streaming_synthesize(pieces(TEXT), seed=SEED, mode=mode)  # type: ignore[arg-type]
            await spoken(f"StreamingSynthesize, {mode}", written)
        whole, header, _ = await client.synthesize_unary("All of it.", seed=SEED)
        found["SynthesizeUnary"] = [header.engine, digest(whole)]
        recording = sound_file(audio)
        await spoken("ConvertVoice", client.convert_voice(recording, seed=SEED))
        prompt = Prompt(recording, transcript=TEXT, language_code="en")
        await spoken("Synthesize, recording", client.synthesize("Like this.", seed=SEED, prompt=prompt))
        made = await client.create_voice(recording, voice_id=name, transcript=TEXT, language_code="en")
        found["CreateVoice"] = [made.id == name, made.content_hash, made.tokens_before_sound]
        await spoken("Synthesize, made voice", client.synthesize("Like this.", seed=SEED, voice=name))
        changed = await client.update_voice(name, display_name="Somebody", labels={"sex": "female"})
        found["UpdateVoice"] = [changed.display_name, dict(changed.labels)]
        found["GetVoice"] = [(await client.voice(name)).transcript]
        found["ListVoices"] = sorted(voice.id.replace(name, "made") for voice in await client.voices())
        await client.delete_voice(name)
        try:
            await client.voice(name)
        except NotFound:
            found["DeleteVoice"] = "gone"
    async with grpc.aio.insecure_channel(address) as channel:
        info = info_pb2_grpc.InfoServiceStub(channel)
        described = await info.GetInfo(info_pb2.GetInfoRequest())
        found["GetInfo"] = sorted((one.service, one.ready, one.rung) for one in (described.info, *described.stages))
        try:
            found["WarmUp"] = (await info.WarmUp(info_pb2.WarmUpRequest())).milliseconds > 0
        except grpc.aio.AioRpcError as error:
            found["WarmUp"] = error.code().name
    return found


async def pieces(text: str) -> AsyncIterator[str]:
    for word in text.split(" "):
        yield word + " "


def digest(audio: bytes) -> str:
    return f"{len(audio)} bytes, {hashlib.sha256(audio).hexdigest()[:16]}"


def sound_file(audio: bytes) -> bytes:
    """WAV of int16, 24 kHz, mono."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(24_000)
        out.writeframes(audio)
    return file.getvalue()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(every_call(*sys.argv[1:3]))))
