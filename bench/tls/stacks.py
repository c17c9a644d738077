"""The services as processes with engines that only seem to speak, called in plaintext, over TLS, or
over TLS with client certificates on every port.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.load.stack import report, room_for
from cosyserve.host.supervision.child import Child
from cosyserve.host.supervision.layout import free_ports
from cosyserve.tls.settings import ClientTls
from tools.certificates import HERE, Authority, Folder

WAYS = ("plaintext", "tls", "mtls")
_STAGES = ("frontend", "llm", "token2wav")
_CALLER = "spiffe://cosyserve.bench/caller"


@dataclass(frozen=True)
class BenchStack:
    """One way of being called. tls: of its callers."""

    way: str
    address: str
    tls: ClientTls | None
    processes: tuple[psutil.Process, ...]

    def cpu_seconds(self) -> float:
        """Of all its processes since they began."""
        times = [process.cpu_times() for process in self.processes]
        return float(sum(each.user + each.system for each in times))


@contextlib.asynccontextmanager
async def stack(
    way: str, model: Path, folder: Path, streams: int, token_milliseconds: float
) -> AsyncIterator[BenchStack]:
    """SERVING when the block begins. folder: a new one, for certificates and sockets.
    token_milliseconds: that the speech tokens take.
    """
    own = Folder(folder / "own").put((authority := Authority()).issue((*HERE, _CALLER)), authority.pem)
    ports = dict(zip((*_STAGES, "orchestrator"), free_ports(4), strict=True))
    common = {**os.environ, **room_for(streams), "COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": str(token_milliseconds)}
    async with contextlib.AsyncExitStack() as exits:
        children = []
        for service, port in ports.items():
            values = {"LISTEN": f"127.0.0.1:{port}", "LOCAL_LISTEN": f"unix:{folder}/{service}", "DRAIN_SECONDS": "1"}
            values |= _tls_of(way, service, own)
            if service == "orchestrator":
                values |= {stage.upper(): f"127.0.0.1:{ports[stage]}" for stage in _STAGES}
            elif service == "frontend":
                values |= {"MODEL": str(model)}
            else:
                values |= {"BACKEND": "fake"}
            children.append(await exits.enter_async_context(_running(service, values, common)))
        for child in children:
            await child.until_serving()
        tls = None if way == "plaintext" else ClientTls(own.ca)
        if way == "mtls":
            tls = ClientTls(own.ca, own.certificate, own.key)
        processes = tuple(psutil.Process(child.process.pid) for child in children)
        yield BenchStack(way, f"127.0.0.1:{ports['orchestrator']}", tls, processes)


def _tls_of(way: str, service: str, own: Folder) -> dict[str, str]:
    if way == "plaintext":
        return {}
    values = {"TLS_CERTIFICATE": own.certificate, "TLS_KEY": own.key}
    if way == "mtls":
        values["TLS_CLIENT_CA"] = own.ca
    if service == "orchestrator":
        values["CALLS_CA"] = own.ca
        if way == "mtls":
            values |= {"CALLS_CERTIFICATE": own.certificate, "CALLS_KEY": own.key}
    named = {name: str(path) for name, path in values.items()}
    return named | ({"TLS_CLIENT_NAMES": _CALLER} if way == "mtls" else {})


@contextlib.asynccontextmanager
async def _running(service: str, values: Mapping[str, str], common: Mapping[str, str]) -> AsyncIterator[Child]:
    environ = {**common, **{f"COSYSERVE_{service.upper()}_{name}": value for name, value in values.items()}}
    child = await Child.start(f"services.{service}", service, values["LOCAL_LISTEN"], environ, _show_trouble)
    try:
        yield child
    finally:
        child.process.terminate()
        await child.ended()


def _show_trouble(line: str) -> None:
    if " WARNING " in line or " ERROR " in line:
        report(line)
