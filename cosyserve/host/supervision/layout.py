"""The service processes of one machine: their ports, devices, addresses and variables."""

import itertools
import os
import random
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.gpu_facts import VISIBLE, gpu_count
from cosyserve.errors import SettingsError
from cosyserve.host.supervision.process_health import NAME, health_addresses, ports_of
from cosyserve.settings import API_KEY, require_meant

_FIRST, _LAST = 20_000, 32_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different free ports.

    They lie below the range of the kernel for outgoing connections, so that the port of a dead
    child is still free when it is restarted. Raises OSError if there are not enough.
    """
    tried = random.sample(range(_FIRST, _LAST), _LAST - _FIRST)
    ports = list(itertools.islice((port for port in tried if _bind_error(host, port) is None), count))
    if len(ports) < count:
        raise OSError(f"fewer than {count} free ports from {_FIRST} to {_LAST} on {host}")
    return ports


def chosen_ports(
    counts: Mapping[str, int], wanted: Mapping[str, Sequence[int]], public: int, others: Mapping[int, str] | None = None
) -> tuple[dict[str, list[int]], int]:
    """The ports of the replicas of each stage, and a spare one for the public service.

    wanted: of a stage the ports of its first replicas; the others have those that follow. Other
    stages have free ones. public: port of the public service, 0 if it takes the spare one. others:
    ports that the processes have besides, and what each is. Raises SettingsError for an unknown
    stage, more ports than replicas, a port outside 1 to 65535, one that is given twice, and one
    that is in use.
    """
    named = {stage: _continued(stage, counts, ports) for stage, ports in wanted.items()}
    owners = dict(others or {})
    if public in owners:
        raise SettingsError(f"the public service would listen on port {public}, which {owners[public]} has")
    if public:
        owners[public] = "the public door"
    for stage, ports in named.items():
        for replica, port in enumerate(ports):
            owner = f"{stage}.{replica}"
            if not 1 <= port <= 65535:
                raise SettingsError(f"--ports: {owner} would listen on port {port}; allowed are 1 to 65535")
            if port in owners:
                raise SettingsError(f"--ports: {owner} would listen on port {port}, which {owners[port]} has")
            owners[port] = owner
            if _bind_error("127.0.0.1", port) is not None:
                raise SettingsError(
                    f"--ports: {owner} cannot listen on 127.0.0.1:{port}: it is in use, or not allowed for this user"
                )
    missing = sum(count for stage, count in counts.items() if stage not in named) + 1
    spare = iter([port for port in free_ports(missing + len(owners)) if port not in owners])
    return {stage: named.get(stage) or [next(spare) for _ in range(count)] for stage, count in counts.items()}, next(
        spare
    )


def _continued(stage: str, counts: Mapping[str, int], ports: Sequence[int]) -> list[int]:
    if stage not in counts:
        raise SettingsError(f"--ports: {stage!r} is no stage; there are {', '.join(counts)}")
    more = counts[stage] - len(ports)
    if more < 0:
        raise SettingsError(
            f"--ports names {len(ports)} ports for {stage}, which has {counts[stage]} "
            f"replica{'s' * (counts[stage] != 1)}"
        )
    return [*ports, *range(ports[-1] + 1, ports[-1] + 1 + more)]


def _bind_error(host: str, port: int) -> str | None:
    """Why this process cannot listen on this address, None if it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


_FORM = re.compile(r"cpu|cuda:\d{1,3}")
_GPU_NAME = re.compile(r"\d+|(GPU|MIG)-.*")


def checked_devices(
    services: Sequence[str], devices: Mapping[str, Sequence[str]], replicas: Mapping[str, int]
) -> dict[str, int]:
    """Number of replicas of each service: one for each of its devices, else as `replicas` says.

    services: those that have an engine. Raises SettingsError for another service, a device that is
    neither cpu nor cuda:N, and a number of replicas that contradicts the devices.
    """
    for service, names in devices.items():
        if service not in services:
            raise SettingsError(
                f"--devices: {service!r} has no engine; services that can have devices: {', '.join(services)}"
            )
        for name in names:
            if not _FORM.fullmatch(name):
                raise SettingsError(
                    f"--devices: {name!r} of {service} is no device; expected cpu, or cuda:N such as cuda:0"
                )
        asked = replicas.get(service)
        if asked is not None and asked != len(names):
            raise SettingsError(
                f"--devices names {len(names)} for {service} and --replicas asks for {asked} of it: each replica has "
                "one device, "
                "so leave --replicas out, or name a device once for each replica that shall use it"
            )
    return {**replicas, **{service: len(names) for service, names in devices.items()}}


def variables(service: str, name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the process of a replica on device `name`. environ: of all processes.

    A process sees only its own GPU, as number 0: engines and their libraries use the first visible
    GPU for some things, whatever device they are given. cuda:N counts as CUDA does: from 0, among
    those in CUDA_VISIBLE_DEVICES if it is set. Raises SettingsError for a GPU that does not exist.
    """
    variable = f"COSYSERVE_{service.upper()}_DEVICE"
    kind, _, number = name.partition(":")
    if kind != "cuda":
        return {variable: name}
    visible_gpus = named_gpus(environ[VISIBLE]) if VISIBLE in environ else list(map(str, range(gpu_count())))
    if int(number) >= len(visible_gpus):
        among = f", of which {VISIBLE}={environ[VISIBLE]} leaves {len(visible_gpus)}" if VISIBLE in environ else ""
        count = gpu_count()
        raise SettingsError(
            f"--devices: {service} is to use {name}, but this machine has {count} NVIDIA GPU{'s' * (count != 1)}{among}"
        )
    return {variable: kind, VISIBLE: visible_gpus[int(number)]}


def named_gpus(visible: str) -> list[str]:
    """The GPUs in a value of CUDA_VISIBLE_DEVICES; CUDA ignores all from the first invalid
    one on.
    """
    return list(itertools.takewhile(_GPU_NAME.fullmatch, (name.strip() for name in visible.split(","))))


STAGES = ("frontend", "llm", "token2wav")
ORCHESTRATOR = "orchestrator"
GATEWAY = "gateway"
"""Serves HTTP, all others gRPC."""
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
    plain: str = ""
    """Where a service with TLS is reached without it on this machine: a socket unix:/path, or for
    the gateway the host:port of its probes. Empty: `address` has no TLS.
    """

    @property
    def label(self) -> str:
        return f"{self.service}.{self.replica}"

    @property
    def probed(self) -> str:
        """Where its supervisor and its callers on this machine reach it, in plaintext."""
        return self.plain or self.address

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
    http: str | None = None,
    sockets: Path | None = None,
) -> list[ProcessSpec]:
    """All processes of one machine: the stages, the orchestrator, and the gateway if `http` is an
    address for it. backend: of both engines, or of llm,
    token2wav or each; otherwise COSYSERVE_LLM_BACKEND and COSYSERVE_TOKEN2WAV_BACKEND apply.
    devices: of a stage, cpu or cuda:N for each of its replicas, instead of their number and of
    `device`. ports: of a stage, on the loopback; further replicas have the ports that follow the
    last one; free ones by default. sockets: a folder that only this user may enter, for the sockets
    of services that have TLS on their ports, and of an orchestrator of several processes; needed if
    there is one.

    Other COSYSERVE_* variables of the environment are passed on, overridden by `environ`. Raises
    SettingsError for a misspelt variable, an unknown service, a number of replicas outside 1 to 16,
    devices that do not exist or contradict it, a malformed address, and an address or port that is
    in use or given twice (`health_addresses`).
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
    host, port = checked_address(listen)
    everyone = {**os.environ, **environ}
    everyone.pop(API_KEY, None)  # of a caller; no service has use for it
    once = (ORCHESTRATOR,) if http is None else (ORCHESTRATOR, GATEWAY)
    health = health_addresses(counts | dict.fromkeys(once, 1), everyone)
    chosen, spare = chosen_ports(counts, ports or {}, port, ports_of(health))
    addresses = {stage: [f"127.0.0.1:{port}" for port in chosen[stage]] for stage in STAGES}
    public = listen if port else f"{host}:{spare}"

    def place(
        service: str, replica: int, address: str, values: Mapping[str, str], gpu: Mapping[str, str] | None = None
    ) -> ProcessSpec:
        own = {"LISTEN": address, "DRAIN_SECONDS": str(drain_seconds), **values}
        host, _, port = address.rpartition(":")
        plain, reached = "", f"{_EVERYWHERE.get(host, host)}:{port}"
        if everyone.get(f"COSYSERVE_{service.upper()}_TLS_CERTIFICATE"):
            if service == GATEWAY:
                own["HEALTH_LISTEN"] = plain = f"127.0.0.1:{_unused([port, *(str(one.port) for one in places)])}"
            else:
                own["LOCAL_LISTEN"] = plain = f"unix:{sockets}/{service}.{replica}"
        elif service == ORCHESTRATOR and _processes(everyone) > 1:
            own["LOCAL_LISTEN"] = plain = f"unix:{sockets}/{service}.{replica}"
        named = {f"COSYSERVE_{service.upper()}_{name}": value for name, value in own.items()}
        return ProcessSpec(service, replica, reached, {**everyone, **named, **(gpu or {})}, plain)

    places = list[ProcessSpec]()
    for stage in STAGES:
        values = {"MODEL": str(model.resolve())}
        if stage in WITH_BACKEND:
            name = backend if isinstance(backend, str) else (backend or {}).get(stage)
            values |= ({"BACKEND": name} if name else {}) | ({"DEVICE": device} if device else {})
        for replica, address in enumerate(addresses[stage]):
            gpu = variables(stage, devices[stage][replica], everyone) if stage in devices else None
            own = {NAME: health[stage][replica]} if stage in health else {}
            places.append(place(stage, replica, address, values | own, gpu))
    reached = {stage: [one.probed for one in places if one.service == stage] for stage in STAGES}
    processes = _processes(everyone)
    orchestrator = place(ORCHESTRATOR, 0, public, {stage.upper(): ",".join(reached[stage]) for stage in STAGES})
    places.append(orchestrator)
    if http is not None:
        try:
            host, port = checked_address(http)
        except SettingsError as error:
            raise SettingsError(f"{error}; --http chooses another address, --http off none") from error
        port = port or _unused([str(one.port) for one in places])
        # Each process has a socket of its own, so that the gateway reaches all of them evenly.
        targets = [orchestrator.probed, *(f"{orchestrator.probed}.{number}" for number in range(1, processes))]
        places.append(place(GATEWAY, 0, f"{host}:{port}", {ORCHESTRATOR.upper(): ",".join(targets)}))
    return places


def _processes(environ: Mapping[str, str]) -> int:
    """How many the orchestrator has; 1 for what is no number, which it refuses itself."""
    value = environ.get("COSYSERVE_ORCHESTRATOR_PROCESSES", "1").strip()
    return int(value) if value.isdecimal() else 1


def _unused(taken: Sequence[str]) -> int:
    """A free port that none of those in `taken` is."""
    return next(free for free in free_ports(len(taken) + 1) if str(free) not in taken)


def checked_address(listen: str) -> tuple[str, int]:
    """Host and port of an address on which this process can listen; port 0 is always free.

    Raises SettingsError for a malformed address and for one that is in use.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{listen!r} is not an address to listen on; expected host:port, such as 127.0.0.1:50051")
    if port == "0":
        return host, 0
    if (reason := _bind_error(host.strip("[]"), int(port))) is not None:
        raise SettingsError(f"cannot listen on {listen}: {reason}")
    return host, int(port)
