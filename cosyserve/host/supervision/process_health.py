"""Where the processes of one machine serve health and metrics without TLS, each on a port of its
own, and whether one that serves HTTP answers; the other services are asked over gRPC.
"""

import asyncio
from collections.abc import Mapping

from cosyserve.errors import SettingsError

NAME = "HEALTH_LISTEN"
_ASK_SECONDS = 2.0
_RETRY_SECONDS = 0.2
_ROUNDS = 3
"""Questions in a row without an answer."""
LATE_SECONDS = 1.0
"""How much later than it was to be woken a process is when it has not run: stopped, or on a machine
that stood still. What it saw meanwhile says nothing about others.
"""
_REQUEST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def health_addresses(counts: Mapping[str, int], environ: Mapping[str, str]) -> dict[str, list[str]]:
    """HEALTH_LISTEN of each replica, for the services that set it. counts: replicas of all.

    The first replica has the address that is set, each further one the port that follows; port 0 is
    a free one for each. A malformed address is left to the service, which names it. Raises
    SettingsError for a port above 65535 and one that two replicas would have.
    """
    addresses, owners = dict[str, list[str]](), dict[int, str]()
    for service, count in counts.items():
        variable = f"COSYSERVE_{service.upper()}_{NAME}"
        host, _, first = environ.get(variable, "").rpartition(":")
        if not host or not first.isdecimal():
            continue
        ports = [int(first) + replica * (first != "0") for replica in range(count)]
        addresses[service] = [f"{host}:{port}" for port in ports]
        for replica, port in enumerate(filter(None, ports)):
            owner = f"{service}.{replica}"
            if port > 65535:
                raise SettingsError(f"{variable}: {owner} would have port {port}; allowed are 1 to 65535")
            if port in owners:
                raise SettingsError(
                    f"{variable}: {owner} would have port {port}, which {owners[port]} has; leave room for the "
                    f"{count} replicas of {service}"
                )
            owners[port] = owner
    return addresses


def ports_of(addresses: Mapping[str, list[str]]) -> dict[int, str]:
    """The ports of these addresses, and what has each."""
    return {
        int(address.rpartition(":")[2]): f"{NAME} of {service}.{replica}"
        for service, places in addresses.items()
        for replica, address in enumerate(places)
        if not address.endswith(":0")
    }


async def answer(address: str, seconds: float) -> None:
    """Return when the process at `address` (host:port) has answered with any status. Raises OSError
    if it refuses or hangs up, TimeoutError after `seconds`.
    """
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            writer.write(_REQUEST)
            if not (await reader.readline()).startswith(b"HTTP/1.1 "):
                raise ConnectionError(f"{address} does not answer in HTTP")
        finally:
            writer.close()


async def until_answered(address: str) -> None:
    """Return at the first answer; never without one."""
    while True:
        try:
            return await answer(address, _ASK_SECONDS)
        except OSError:  # TimeoutError, too
            await asyncio.sleep(_RETRY_SECONDS)  # the process is starting, or has died, which its exit shows


async def until_silent(address: str, silent_seconds: float, refusing_seconds: float) -> str:
    """As `cosyserve.host.supervision.child.until_silent`: what was observed when the process has
    given no answer for `silent_seconds`, or refused connections for `refusing_seconds`.
    """
    loop = asyncio.get_running_loop()
    answered, silent = loop.time(), 0
    while True:
        due = loop.time() + silent_seconds / _ROUNDS
        try:
            await answer(address, silent_seconds / _ROUNDS)
            answered, silent = loop.time(), 0
        except TimeoutError:
            if loop.time() - due > LATE_SECONDS:
                answered, silent = loop.time(), 0
                continue
            silent += 1
            if silent == _ROUNDS:
                return f"gave no health answer for {silent_seconds:g} s"
            continue
        except OSError:
            if loop.time() - answered > refusing_seconds:
                return f"has refused connections for {refusing_seconds:g} s"
        due = loop.time() + _ASK_SECONDS
        await asyncio.sleep(_ASK_SECONDS)
        if loop.time() - due > LATE_SECONDS:
            answered = loop.time()
