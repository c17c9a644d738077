"""What is measured: services that are started for it, or a running server."""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from bench.field.loads import GRPC, HTTP
from bench.load.stack import report, room_for
from cosyserve.commands.info import lines
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.rpc.transport import channel_options
from cosyserve.v1 import info_pb2, info_pb2_grpc

FAKE = "fake"
PLACES = 1_024
"""Requests at once that no setting refuses; the services refuse what they cannot speak in time."""
_LIMITED = {"COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "auto"}
"""As by default: refused requests get the time after which to come again."""
ALL_VOICES = {"COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": str(4 << 30)}
"""The prompts of the five voices of random weights, 26 s, take 3.1 GB on a GPU; the default keeps
two thirds of them.
"""
COLD = {"COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": "0", "COSYSERVE_LLM_PROMPT_STATES_MIB": "0"}
"""Nothing that was computed for a voice is kept."""
PHASE = " start: "
"""In lines of the services that say how long a part of their start took."""
_QUIET = {"COSYSERVE_GATEWAY_LOG_LEVEL": "WARNING"}
_FAKE_TOKEN_MILLISECONDS = 5.0
_INFO_SECONDS = 10.0


@dataclass(frozen=True)
class Server:
    """model: directory of services that are started; None: a running server at `addresses`, by
    door. identity: of the model. backend, device: of the engines. settings: environment of the
    services; derived: those that follow from the machine. any_sample: its sound is no speech, the
    first sample counts as audible.
    """

    identity: str
    model: Path | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    backend: str = "torch"
    device: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    any_sample: bool = False

    def computes_on(self, gpus: Sequence[str], processor: str) -> str:
        """The name of the device, of these GPUs and this processor; empty for a running server,
        which is not asked.
        """
        if self.model is None:
            return ""
        kind, _, number = (self.device or "").partition(":")
        if self.backend == FAKE or kind == "cpu" or not gpus:
            return processor
        return gpus[int(number or 0)]


@dataclass(frozen=True)
class Serving:
    """addresses: host:port by door. start_seconds: until it was ready; None for one that ran.
    engines: lines for people; empty where it is reached over HTTP alone. phases: of the start, as
    the services log them.
    """

    addresses: Mapping[str, str]
    start_seconds: float | None
    engines: tuple[str, ...]
    phases: tuple[str, ...] = ()


@contextlib.asynccontextmanager
async def serving(server: Server, *, cold: bool = False) -> AsyncIterator[Serving]:
    """While the block runs. cold: services are started with COLD. Raises ValueError for a running
    server that is to be cold, and what `local_deployment` raises.
    """
    if server.model is None:
        if cold:
            raise ValueError("a running server keeps what it knows of its voices; start one without --url and --target")
        known = server.addresses.get(GRPC)
        yield Serving(server.addresses, None, await _engines(known) if known else ())
        return
    pace = {"COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": str(_FAKE_TOKEN_MILLISECONDS)} if server.backend == FAKE else {}
    own = room_for(PLACES) | _LIMITED | _QUIET | pace | dict(server.settings)
    environ = {**os.environ, **own, **(COLD if cold else {})}
    begun, phases = time.monotonic(), list[str]()

    def hear(line: str) -> None:
        if PHASE in line:
            phases.append(line.partition("|")[0].strip() + ": " + line.partition(PHASE)[2])
        elif " WARNING " in line or " ERROR " in line:
            report(line)

    async with local_deployment(
        server.model,
        backend=server.backend,
        device=server.device,
        http="127.0.0.1:0",
        environ=environ,
        report=report,
        log=hear,
    ) as stack:
        ready = time.monotonic() - begun
        assert stack.http is not None
        addresses = {HTTP: stack.http, GRPC: stack.address}
        yield Serving(addresses, ready, await _engines(stack.address), tuple(phases))


async def _engines(address: str) -> tuple[str, ...]:
    """What `cosyserve info` says of the engines."""
    async with open_channel(address, channel_options(), None) as channel:
        stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel))
        output = await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=_INFO_SECONDS)
    stages = [lines(stage).splitlines() for stage in output.stages if stage.HasField("identity")]
    # The service, its engine, its device; not how long it has been up.
    return tuple(" ".join(" ".join([service.split(",")[0], *more[:2]]).split()) for service, *more in stages)
