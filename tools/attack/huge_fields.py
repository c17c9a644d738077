"""Field values of no use, each as large as a message can carry: is every one refused, soon and with
a status that says so?
"""

import asyncio
from typing import Any

import grpc

from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc, voice_pb2
from tools.attack.target import HONEST_SECONDS, Finding, Target

_MOST_SECONDS = 3.0
_ALLOWED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED)
_SPEAK: dict[str, Any] = {
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


async def huge_fields(target: Target) -> Finding:
    wrong, longest = [], 0.0
    async with target.channel() as channel:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        for name, fields in _SPEAK.items():
            request = synthesis_pb2.SynthesizeRequest(**fields)
            begin = asyncio.get_running_loop().time()
            code = await stub.Synthesize(request, timeout=HONEST_SECONDS).code()
            longest = max(longest, asyncio.get_running_loop().time() - begin)
            if code not in (*_ALLOWED, *((grpc.StatusCode.OUT_OF_RANGE,) if "start_sample" in fields else ())):
                wrong.append(f"{name}: {code.name}")
    return Finding(
        f"{len(_SPEAK)} requests, the slowest answered after {longest:.2f} s; answered otherwise: "
        f"{'; '.join(wrong) or 'none'}",
        f"INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE or RESOURCE_EXHAUSTED, {_MOST_SECONDS:.0f} s",
        not wrong and longest <= _MOST_SECONDS,
    )
