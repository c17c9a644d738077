"""The scripted stages and a real orchestrator, with TLS and client certificates on every port."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.rpc.server import Service, running
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.tls.settings import ClientTls
from services.orchestrator import __main__ as orchestrator
from services.orchestrator.settings import OrchestratorSettings
from tests.stacks.certificates import HERE, Authority, Folder
from tests.stacks.in_process import serving, until_serving
from tests.stacks.scripted_stages import SERVICERS, Script

ORCHESTRATOR = "spiffe://cosyserve.test/orchestrator"
STAGE = "spiffe://cosyserve.test/stage"
CALLER = "spiffe://cosyserve.test/caller"


@dataclass
class Secured:
    authority: Authority
    stages: dict[str, Service]
    orchestrator: Service
    folders: dict[str, Folder]
    """Of stage, orchestrator and caller."""
    script: Script

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.orchestrator.port}"

    @property
    def caller(self) -> ClientTls:
        """What a welcome caller uses."""
        return tls_of(self.folders["caller"])


def tls_of(folder: Folder) -> ClientTls:
    return ClientTls(folder.ca, folder.certificate, folder.key)


def served(folder: Folder, *names: str) -> dict[str, Any]:
    """Settings of a server that asks for client certificates."""
    return {
        "tls_certificate": folder.certificate,
        "tls_key": folder.key,
        "tls_client_ca": folder.ca,
        "tls_client_names": names,
    }


@contextlib.asynccontextmanager
async def secured(path: Path, **settings: Any) -> AsyncIterator[Secured]:
    """SERVING when the block begins. path: for the certificates. settings: of the orchestrator."""
    authority = Authority()
    names = {"stage": STAGE, "orchestrator": ORCHESTRATOR, "caller": CALLER}
    folders = {
        name: Folder(path / name).put(authority.issue((*HERE, uri)), authority.pem) for name, uri in names.items()
    }
    script = Script()
    own = folders["orchestrator"]
    async with contextlib.AsyncExitStack() as exits:
        stages = {
            name: await exits.enter_async_context(
                serving(name, servicer(script), **served(folders["stage"], ORCHESTRATOR))
            )
            for name, servicer in SERVICERS.items()
        }
        values = OrchestratorSettings(
            listen="127.0.0.1:0",
            drain_seconds=0.0,
            calls_ca=own.ca,
            calls_certificate=own.certificate,
            calls_key=own.key,
            **{name: (f"127.0.0.1:{service.port}",) for name, service in stages.items()},
            **{"warm_voices": 0, **served(own, CALLER), **settings},
        )
        load = partial(orchestrator.load, settings=values)
        door = await exits.enter_async_context(
            running(orchestrator.SERVICE, values, load, owns_health=True, gate=values.gate())
        )
        stack = Secured(authority, stages, door, folders, script)
        async with open_channel(stack.address, [], stack.caller) as channel:
            await until_serving(channel)
        yield stack


async def health_status(address: str, tls: ClientTls | None, host: str = "") -> str:
    """SERVING or another state of the server at `address`, or the status of the call."""
    async with open_channel(address, [], tls, host) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
