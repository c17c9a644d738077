"""The service processes of one machine: their addresses and variables."""

import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.host.supervision.layout import checked_devices, chosen_ports, variables
from cosyserve.settings import require_meant

STAGES = ("frontend", "llm", "token2wav")
ORCHESTRATOR = "orchestrator"
WITH_BACKEND = ("llm", "token2wav")
_MOST_REPLICAS = 16
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not bound


@dataclass(frozen=True, eq=False)
class ProcessSpec:
    """One service process: `python -m services.<service>` with `environ`, reachable at
    `address`.
    """

    service: str
    replica: int
    address: str
    environ: Mapping[str, str]

    @property
    def label(self) -> str:
        return f"{self.service}.{self.replica}"

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


def lay_out(
    model: Path,
    listen: str,
    replicas: Mapping[str, int],
    backend: str | Mapping[str, str] | None,
    device: str | None,
    drain_seconds: float,
    environ: Mapping[str, str],
    devices: Mapping[str, Sequence[str]] | None = None,
    ports: Mapping[str, Sequence[int]] | None = None,
) -> list[ProcessSpec]:
    """All processes of one machine, the orchestrator last. backend: of both engines, or of llm,
    token2wav or each; otherwise COSYSERVE_LLM_BACKEND and COSYSERVE_TOKEN2WAV_BACKEND apply.
    devices: of a stage, cpu or cuda:N for each of its replicas, instead of their number and of
    `device`. ports: of a stage, on the loopback; further replicas have the ports that follow the
    last one; free ones by default.

    Other COSYSERVE_* variables of the environment are passed on, overridden by `environ`. Raises
    SettingsError for a misspelt variable, an unknown service, a number of replicas outside 1 to 16,
    devices that do not exist or contradict it, a malformed address, and an address or port that is
    in use.
    """
    devices = devices or {}
    replicas = checked_devices(WITH_BACKEND, devices, replicas)
    for service, count in replicas.items():
        if service not in STAGES:
            raise SettingsError(f"{service!r} has no replicas; services that can have some: {', '.join(STAGES)}")
        if not 1 <= count <= _MOST_REPLICAS:
            raise SettingsError(f"{count} replicas of {service} were asked for, allowed are 1 to {_MOST_REPLICAS}")
    require_meant(os.environ)
    counts = {stage: replicas.get(stage, 1) for stage in STAGES}
    chosen, spare = chosen_ports(counts, ports or {}, _port_of(listen))
    addresses = {stage: [f"127.0.0.1:{port}" for port in chosen[stage]] for stage in STAGES}
    public = _public(listen, spare)
    everyone = {**os.environ, **environ}

    def place(service: str, replica: int, address: str, values: Mapping[str, str]) -> ProcessSpec:
        prefix = f"COSYSERVE_{service.upper()}_"
        own = {"LISTEN": address, "DRAIN_SECONDS": str(drain_seconds), **values}
        host, _, port = address.rpartition(":")
        reached = f"{_EVERYWHERE.get(host, host)}:{port}"
        return ProcessSpec(
            service, replica, reached, {**everyone, **{prefix + name: value for name, value in own.items()}}
        )

    places = []
    for stage in STAGES:
        values = {"MODEL": str(model.resolve())}
        if stage in WITH_BACKEND:
            name = backend if isinstance(backend, str) else (backend or {}).get(stage)
            values |= ({"BACKEND": name} if name else {}) | ({"DEVICE": device} if device else {})
        for replica, address in enumerate(addresses[stage]):
            base = place(stage, replica, address, values)
            own = variables(stage, devices[stage][replica], everyone) if stage in devices else {}
            places.append(dataclasses.replace(base, environ={**base.environ, **own}))
    return [*places, place(ORCHESTRATOR, 0, public, {stage.upper(): ",".join(addresses[stage]) for stage in STAGES})]


def checked_address(listen: str) -> tuple[str, int]:
    """Host and port of an address on which this process can listen; port 0 is always free.

    Raises SettingsError for a malformed address and for one that is in use.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{listen!r} is not an address to listen on; expected host:port, such as 127.0.0.1:50051")
    if port == "0":
        return host, 0
    bare = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in bare else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bare, int(port)))
        except OSError as error:
            raise SettingsError(f"cannot listen on {listen}: {error.strerror}") from error
    return host, int(port)


def _port_of(listen: str) -> int:
    """Port of the public service; 0 for a free one. Raises SettingsError as `checked_address`."""
    return int(listen.rpartition(":")[2]) if checked_address(listen)[1] else 0


def _public(listen: str, spare: int) -> str:
    host, port = checked_address(listen)
    return listen if port else f"{host}:{spare}"
