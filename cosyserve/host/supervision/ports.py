"""Loopback ports for child processes."""

import random
import socket
from collections.abc import Mapping, Sequence

from cosyserve.errors import SettingsError

_FIRST, _LAST = 20_000, 32_000


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different free ports.

    They lie below the range of the kernel for outgoing connections, so that the port of a dead
    child is still free when it is restarted. Raises OSError if there are not enough.
    """
    ports: list[int] = []
    for port in random.sample(range(_FIRST, _LAST), _LAST - _FIRST):
        if len(ports) == count:
            return ports
        with socket.socket() as probe:
            if not _is_free(probe, host, port):
                continue
            ports.append(port)
    raise OSError(f"fewer than {count} free ports from {_FIRST} to {_LAST} on {host}")


def chosen_ports(
    counts: Mapping[str, int], wanted: Mapping[str, Sequence[int]], public: int
) -> tuple[dict[str, list[int]], int]:
    """The ports of the replicas of each stage, and a spare one for the public service.

    wanted: of a stage the ports of its first replicas; the others have those that follow. Other
    stages have free ones. public: port of the public service, 0 if it takes the spare one. Raises
    SettingsError for an unknown stage, more ports than replicas, a port outside 1 to 65535, one
    that is given twice, and one that is in use.
    """
    named = {stage: _continued(stage, counts, ports) for stage, ports in wanted.items()}
    owners = {public: "the public door"} if public else {}
    for stage, ports in named.items():
        for replica, port in enumerate(ports):
            owner = f"{stage}.{replica}"
            if not 1 <= port <= 65535:
                raise SettingsError(f"--ports: {owner} would listen on port {port}; allowed are 1 to 65535")
            if port in owners:
                raise SettingsError(f"--ports: {owner} would listen on port {port}, which {owners[port]} has")
            owners[port] = owner
            with socket.socket() as probe:
                if not _is_free(probe, "127.0.0.1", port):
                    raise SettingsError(
                        f"--ports: {owner} cannot listen on 127.0.0.1:{port}: it is in use, or not allowed for this "
                        "user"
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


def _is_free(probe: socket.socket, host: str, port: int) -> bool:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
    except OSError:
        return False
    return True
