"""Attacks by what a message holds: is it refused soon and with a status that says so, and do other
callers wait for it?
"""

import asyncio
import struct
from typing import Any

import grpc

from cosyserve.client import AsyncClient
from cosyserve.errors import FailedPrecondition, InvalidRequest
from cosyserve.v1 import info_pb2, synthesis_pb2, synthesis_pb2_grpc, voice_pb2
from tools.attack.target import HONEST_SECONDS, Finding, Target, meanwhile

_GARBAGE = (b"\xff" * 7, b"\x0a\xff\xff\xff\xff\x0f", bytes(range(1, 256)) * 40)
_ALLOWED = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED}
_HUGE: dict[str, dict[str, Any]] = {
    "text of 20 million characters": {"text": "a" * 20_000_000},
    "voice of a million characters": {"text": "Yes.", "voice": "v" * 1_000_000},
    "language of a million characters": {"text": "Yes.", "language_code": "x" * 1_000_000},
    "instruction of a million characters": {"text": "Yes.", "instruction": "i" * 1_000_000},
    "a hundred thousand pronunciations": {
        "text": "Yes.",
        "pronunciations": {f"w{number}": "a" for number in range(100_000)},
    },
    "a speed that is no number": {"text": "Yes.", "speed": float("nan")},
    "a start behind the end of time": {"text": "Yes.", "start_sample": 2**62},
    "a message above the limit": {"text": "a" * 30_000_000},
    "a prompt of 15 million bytes": {"text": "Yes.", "prompt": voice_pb2.PromptRecording(audio=bytes(15_000_000))},
}


async def number_texts(target: Target) -> Finding:
    """Eight texts of nothing but digits, which take the frontend longest, and a tiny request at the
    same time.
    """
    count, text, longest = 8, "9876543210123 " * (19_000 // 14), 3.0
    async with (
        AsyncClient(target.address) as client,
        meanwhile(client.synthesize(text, seed=seed).read() for seed in range(count)),
    ):
        await asyncio.sleep(0.2)
        waits = [await target.tiny() for _ in range(3)]
    await target.until_idle()
    return Finding(
        f"tiny requests next to {count} texts of {len(text)} digits answered after {max(waits):.2f} s at most",
        f"{longest:.0f} s",
        max(waits) <= longest,
    )


async def undecodable(target: Target) -> Finding:
    """Bytes that are no message, to every method of the public door: does the status say that it is
    the caller's fault?
    """
    wrong, methods = [], 0
    async with target.channel() as channel:
        for file, name in ((synthesis_pb2, "SynthesisService"), (info_pb2, "InfoService")):
            service = file.DESCRIPTOR.services_by_name[name]
            for method in service.methods:
                call: Any = channel.stream_stream(f"/{service.full_name}/{method.name}")
                codes = {await call(iter((garbage,)), timeout=HONEST_SECONDS).code() for garbage in _GARBAGE}
                methods += 1
                if codes != {grpc.StatusCode.INVALID_ARGUMENT}:
                    wrong.append(f"{method.name}: {', '.join(code.name for code in codes)}")
    return Finding(
        f"{methods} methods, {len(_GARBAGE)} pieces each; answered otherwise: {'; '.join(wrong) or 'none'}",
        "INVALID_ARGUMENT",
        not wrong,
    )


async def empty_chunks(target: Target) -> Finding:
    """A WAV file of a million empty chunks, as a recording to convert: is it refused before it
    takes long?
    """
    longest = 2.0
    body = b"WAVE" + b"JUNK\0\0\0\0" * 1_000_000
    recording = b"RIFF" + struct.pack("<I", len(body)) + body
    begin, answer = asyncio.get_running_loop().time(), "no refusal"
    async with AsyncClient(target.address) as client:
        tiny = asyncio.create_task(target.tiny())
        try:
            await client.convert_voice(recording, timeout=30.0).read()
        except (InvalidRequest, FailedPrecondition) as error:
            answer = error.code.name
        took = asyncio.get_running_loop().time() - begin
        waited = await tiny
    return Finding(
        f"{answer} after {took:.2f} s, a tiny request next to it answered after {waited:.2f} s",
        f"a refusal after {longest:.0f} s",
        answer != "no refusal" and max(took, waited) <= longest,
    )


async def huge_fields(target: Target) -> Finding:
    """Field values of no use, each as large as a message can carry: is every one refused, soon and
    with a status that says so?
    """
    wrong, longest, most = [], 0.0, 3.0
    async with target.channel() as channel:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        for name, fields in _HUGE.items():
            request = synthesis_pb2.SynthesizeRequest(**fields)
            begin = asyncio.get_running_loop().time()
            code = await stub.Synthesize(request, timeout=HONEST_SECONDS).code()
            longest = max(longest, asyncio.get_running_loop().time() - begin)
            if code not in _ALLOWED | ({grpc.StatusCode.OUT_OF_RANGE} if "start_sample" in fields else set()):
                wrong.append(f"{name}: {code.name}")
    return Finding(
        f"{len(_HUGE)} requests, the slowest answered after {longest:.2f} s; answered otherwise: "
        f"{'; '.join(wrong) or 'none'}",
        f"INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE or RESOURCE_EXHAUSTED, {most:.0f} s",
        not wrong and longest <= most,
    )
