"""How soon is every stage idle when a caller hangs up? `python -m bench.hang_ups [--model DIR]
[--count 40] [--json FILE]`

All services and the gateway in this process, so that the engines can be looked at: from the moment
at which the caller's socket is closed until the orchestrator has no request, the speech-token model
no sentence and the decoder no stream. Callers hang up at a moment of their own, before or while
they hear something. Everything shares one interpreter, so that the figures are higher than those of
separate processes.
"""

import argparse
import asyncio
import contextlib
import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.command_line import command, user_errors
from bench.load.stack import TEXTS
from bench.parts.part import ResultsFile
from bench.parts.provenance import machine
from bench.reports.tables import columns
from cosyserve.client import AsyncClient
from cosyserve.rpc.server import Service, running
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.v1 import llm_pb2_grpc, token2wav_pb2_grpc
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from services.gateway.app import application, connection_limits
from services.gateway.serving.server import GatewayServer
from services.gateway.settings import GatewaySettings
from services.llm.backends.torch_backend import TorchBackend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.orchestrator import __main__ as orchestrator
from services.orchestrator.settings import OrchestratorSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.servicer import Token2WavServicer

HERE = "127.0.0.1:0"
FORMS = ("pcm", "sse", "websocket")
MOST_MILLISECONDS = 100.0
_LOOK_SECONDS = 0.001
_UPGRADE = (
    b"GET /v1/audio/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@dataclass(frozen=True)
class Watched:
    """http: host:port of the gateway. busy: how much work the stages have."""

    http: str
    busy: Callable[[], int]


@dataclass(frozen=True)
class HangUps:
    """Milliseconds until every stage was idle."""

    form: str
    count: int
    p50: float
    p95: float
    p99: float
    most: float


async def _nothing() -> None:
    pass


@contextlib.asynccontextmanager
async def _stage(name: str, add: Callable[[Any, Any], None], servicer: object) -> AsyncIterator[Service]:
    async def load(service: Service) -> Any:
        add(servicer, service.handlers)
        return _nothing

    async with running(f"cosyserve.v1.{name}", ServerSettings(listen=HERE, drain_seconds=0.0), load) as service:
        yield service


@contextlib.asynccontextmanager
async def stack(model: Path) -> AsyncIterator[Watched]:
    """All services on `model` and a gateway, able to serve when the block begins."""
    llm = await asyncio.to_thread(TorchBackend.load, LlmSettings(listen=HERE, model=model, backend="torch"))
    token2wav = await asyncio.to_thread(load_backend, "torch", EngineSettings(model=model))
    batcher = Batcher(token2wav.decoders, Limits(max_streams=32, state_bytes=1 << 32))
    async with contextlib.AsyncExitStack() as exits:
        exits.push_async_callback(llm.close)
        exits.callback(batcher.close)
        voices = exits.enter_context(tempfile.TemporaryDirectory())
        front_settings = FrontendSettings(listen=HERE, model=model, drain_seconds=0.0, voices_url=voices)
        front = partial(frontend.load, settings=front_settings)
        stages = {
            "llm": _stage("LlmService", llm_pb2_grpc.add_LlmServiceServicer_to_server, LlmServicer(llm)),
            "token2wav": _stage(
                "Token2WavService",
                token2wav_pb2_grpc.add_Token2WavServiceServicer_to_server,
                Token2WavServicer(token2wav.identity, batcher),
            ),
            "frontend": running(frontend.SERVICE, front_settings, front),
        }
        addresses = {
            name: (f"127.0.0.1:{(await exits.enter_async_context(serving)).port}",) for name, serving in stages.items()
        }
        settings = OrchestratorSettings(
            listen=HERE,
            drain_seconds=0.0,
            max_streams=32,
            adaptive_limit="off",
            warm_voices=0,
            frontend=addresses["frontend"],
            llm=addresses["llm"],
            token2wav=addresses["token2wav"],
        )
        load = partial(orchestrator.load, settings=settings)
        door = await exits.enter_async_context(running(orchestrator.SERVICE, settings, load, owns_health=True))
        gateway_settings = GatewaySettings(orchestrator=f"127.0.0.1:{door.port}", listen=HERE, drain_seconds=0.0)
        app = application(gateway_settings)
        server = GatewayServer(app, gateway_settings, connection_limits(gateway_settings))
        listening = exits.enter_context(socket.create_server(("127.0.0.1", 0)))
        serving = asyncio.create_task(server._serve([listening]))  # serve() takes the signals of the process

        async def stop() -> None:
            server.should_exit = True
            await serving

        exits.push_async_callback(stop)
        async with AsyncClient(f"127.0.0.1:{door.port}") as client:
            await client.synthesize(TEXTS[0], resumptions=100).read()
        yield Watched(
            f"127.0.0.1:{listening.getsockname()[1]}",
            lambda: batcher.stats().streams + llm.engine.stats.running + app.state.drain.working,
        )


async def hang_up(watched: Watched, form: str, number: int, after: float) -> float:
    """Seconds until all is idle, when the caller hangs up `after` seconds."""
    host, _, port = watched.http.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(_asking(form, " ".join(TEXTS), number))
    await asyncio.sleep(after)
    begin = time.perf_counter()
    writer.transport.abort()
    while watched.busy():  # noqa: ASYNC110 - nothing notifies of it
        await asyncio.sleep(_LOOK_SECONDS)
    return time.perf_counter() - begin


def _asking(form: str, text: str, seed: int) -> bytes:
    if form == "websocket":
        messages: tuple[dict[str, Any], ...] = (
            {"type": "setup", "seed": seed},
            {"type": "text", "text": text},
            {"type": "end"},
        )
        return _UPGRADE + b"".join(map(_frame, messages))
    fields = {
        "input": text,
        "seed": seed,
        "response_format": "pcm",
        "stream_format": "sse" if form == "sse" else "audio",
    }
    content = json.dumps(fields).encode()
    head = "POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
    return head.encode() + str(len(content)).encode() + b"\r\n\r\n" + content


def _frame(message: dict[str, Any]) -> bytes:
    """A text message of a client (RFC 6455, section 5.2), masked with zeros."""
    content = json.dumps(message).encode()
    return b"\x81\xfe" + len(content).to_bytes(2, "big") + bytes(4) + content


async def measured(model: Path, count: int) -> list[HangUps]:
    """Each form."""
    rows, moments = [], random.Random(1)
    async with stack(model) as watched:
        for form in FORMS:
            seconds = [await hang_up(watched, form, number, moments.uniform(0.0, 2.0)) for number in range(count)]
            p50, p95, p99 = (1000 * float(value) for value in np.percentile(seconds, (50, 95, 99)))
            rows.append(HangUps(form, count, p50, p95, p99, 1000 * max(seconds)))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a hang-up in a hundred took longer than 100 ms."""
    parser: argparse.ArgumentParser = command("bench.hang_ups", __doc__)
    parser.add_argument("--count", type=int, default=40, help="hang-ups of each form (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here as well")
    options = parser.parse_args(arguments)
    with user_errors("bench.hang_ups"):
        rows = asyncio.run(measured(options.model, options.count))
    print("\n".join(columns([asdict(row) for row in rows])))
    results = ResultsFile(options.json)
    results["machine"] = machine()
    results["hang_ups"] = [asdict(row) for row in rows]
    return 0 if all(row.p99 <= MOST_MILLISECONDS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
