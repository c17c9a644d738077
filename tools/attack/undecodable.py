"""Bytes that are no message, to every method of the public door: is the caller answered that it is
its own fault?
"""

from typing import Any

import grpc

from cosyserve.v1 import info_pb2, synthesis_pb2
from tools.attack.target import HONEST_SECONDS, Finding, Target

_GARBAGE = (b"\xff" * 7, b"\x0a\xff\xff\xff\xff\x0f", bytes(range(1, 256)) * 40)
_ALLOWED = (grpc.StatusCode.INVALID_ARGUMENT,)


async def undecodable(target: Target) -> Finding:
    answers: dict[str, set[grpc.StatusCode]] = {}
    async with target.channel() as channel:
        for service in (
            synthesis_pb2.DESCRIPTOR.services_by_name["SynthesisService"],
            info_pb2.DESCRIPTOR.services_by_name["InfoService"],
        ):
            for method in service.methods:
                call: Any = channel.stream_stream(f"/{service.full_name}/{method.name}")
                answers[method.name] = {await _status(call, garbage) for garbage in _GARBAGE}
    wrong = [
        f"{name}: {', '.join(code.name for code in codes)}"
        for name, codes in answers.items()
        if not codes <= set(_ALLOWED)
    ]
    return Finding(
        f"{len(answers)} methods, {len(_GARBAGE)} pieces each; answered otherwise: {'; '.join(wrong) or 'none'}",
        "INVALID_ARGUMENT",
        not wrong,
    )


async def _status(method: Any, garbage: bytes) -> grpc.StatusCode:
    call = method(iter((garbage,)), timeout=HONEST_SECONDS)
    code: grpc.StatusCode = await call.code()
    return code
