"""What the loads have in common: the texts, and the services that are measured, with their
settings.
"""

import argparse
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from bench.parts.provenance import gpu
from cosyserve.host.supervision.supervisor import local_deployment

TEXTS = (
    "Thank you for calling, how can I help you today?",
    "Your parcel left our house on Monday and should be with you by Friday.",
    "I have found two flights in the morning and one late in the evening.",
    "One moment please, I am looking at your account.",
    "It will rain until noon, and then the sun comes out.",
    "Could you tell me the number that is printed on the back of the card?",
    "The meeting has been moved to half past three, in the room on the second floor.",
    "That is a good question, and the answer depends on where you live.",
)
ALL_ADMITTED = {"COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off"}
"""Environment of a stack whose callers are not to be refused, however busy the machine is."""
_MOST_SEQUENCES = 128
"""Of a step of the speech-token model on a GPU."""


def room_for(streams: int) -> dict[str, str]:
    """Settings with which no stage refuses `streams` streams, so that the machine is measured and
    not a limit.
    """
    return ALL_ADMITTED | {
        "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": str(streams),
        "COSYSERVE_LLM_MAX_SEQUENCES": str(min(2 * streams, _MOST_SEQUENCES)),
        "COSYSERVE_LLM_MAX_WAITING": str(2 * streams),
        "COSYSERVE_TOKEN2WAV_MAX_STREAMS": str(2 * streams),
    }


@asynccontextmanager
async def endpoint(options: argparse.Namespace, environ: Mapping[str, str]) -> AsyncIterator[str]:
    """The address to ask: of --server, or of services that live as long as the block."""
    if options.server:
        yield options.server
        return
    settings = {**environ, **dict(options.set)}
    async with local_deployment(options.model, device=options.device, environ=settings, report=report) as stack:
        yield stack.address


def report(line: str) -> None:
    print(line, file=sys.stderr)


def gpu_megabytes() -> float | None:
    """In use by all processes on the GPUs that this process may use, as nvidia-smi reports; None
    without one.
    """
    used = gpu("index", "uuid", "memory.used")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = None if visible is None else visible.split(",")
    mine = [float(megabytes) for index, uuid, megabytes in used if names is None or {index, uuid} & set(names)]
    return sum(mine) if mine else None
