"""A name, looked up and followed while it is in use: in the hosts file, whose
names go before those of DNS, then in DNS, without a thread.

The DNS client is dnspython: `loop.getaddrinfo` would hold a thread of the executor for as long as a
DNS server is silent, and cannot ask a server that the target names (docs/decisions/0030).
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.resolver

from cosyserve.errors import SettingsError
from cosyserve.rpc.names.target import NamedTarget

_TRY_SECONDS: Final = 0.8
"""Wait for one answer: a datagram may be lost, and the next try still has to be in time."""
_ALL_SECONDS: Final = 2.4
HOSTS: Final = Path("/etc/hosts")
_LOOPBACK: Final = ("127.0.0.1", "::1")
log = logging.getLogger(__name__)
LOOK_UP_SECONDS: Final = 1.0
"""Between two look-ups of a name."""
LEAST_SECONDS: Final = 0.5
"""Between two look-ups of a name, at the least."""
MOST_ADDRESSES: Final = 1000
_EMPTY_ANSWERS: Final = 2
"""Answers without any address, in a row, after which the last addresses are given up: a DNS server
that has just started may know no name yet.
"""


class LookupFailed(Exception):
    """DNS gave no answer, or said that it cannot answer; the message says why."""


class NameLookup:
    """Looks `target` up whenever it is asked to."""

    def __init__(self, target: NamedTarget) -> None:
        self._target = target
        self._resolver: dns.asyncresolver.Resolver | None = None

    async def addresses(self) -> list[str]:
        """The IP addresses of the name, sorted, all of one family: a process with an IPv4 and an
        IPv6 address is one process. IPv4 is taken if the name has such addresses and this host a
        route to one, else IPv6. Empty if the name has none. Raises LookupFailed.
        """
        if self._target.server is None and (listed := listed_addresses(self._target.host)):
            four = [address for address in listed if ":" not in address]
            return sorted(_with_route(four) or _with_route(listed) or listed)
        found: list[str] = []
        for kind in ("A", "AAAA"):
            answer = await self._ask(kind)
            if answer is None:
                return []
            if usable := _with_route(answer):
                return sorted(usable, key=ipaddress.ip_address)
            found += answer
        return sorted(found)

    async def _ask(self, kind: str) -> list[str] | None:
        """The records of one kind; None if the name does not exist at all."""
        try:
            self._resolver = self._resolver or self._made()
            answer = await self._resolver.resolve(
                self._target.host,
                kind,
                search=self._target.server is None and not self._target.rooted,
                lifetime=_ALL_SECONDS,
                backend=dns.asyncbackend.get_backend("asyncio"),
            )
        except dns.resolver.NXDOMAIN:
            return None
        except dns.resolver.NoAnswer:
            return []
        except dns.exception.Timeout as error:
            self._resolver = None  # the servers of this host may have changed
            raise LookupFailed(f"no answer within {_ALL_SECONDS:g} s") from error
        except (dns.exception.DNSException, OSError, ValueError, UnicodeError) as error:
            self._resolver = None
            raise LookupFailed(str(error) or type(error).__name__) from error
        return [record.address for record in answer]

    def _made(self) -> dns.asyncresolver.Resolver:
        server = self._target.server
        resolver = dns.asyncresolver.Resolver(configure=server is None)
        if server is not None:
            resolver.nameservers, resolver.port = [server[0]], server[1]
        resolver.timeout = _TRY_SECONDS
        return resolver


def _with_route(addresses: list[str]) -> list[str]:
    return [address for address in addresses if _has_route(address)]


def _has_route(address: str) -> bool:
    """Whether this host has a route to it. Connecting a datagram socket sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


def listed_addresses(host: str, file: Path = HOSTS) -> list[str]:
    """The addresses of `host` in the hosts file, in its order; empty if it is not there. localhost
    and names below it are the loopback in any case (RFC 6761).
    """
    wanted = host.lower()
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    entries = (line.partition("#")[0].split() for line in lines)
    found = [entry[0] for entry in entries if wanted in (name.lower() for name in entry[1:])]
    if not found and (wanted == "localhost" or wanted.endswith(".localhost")):
        return list(_LOOPBACK)
    return list(dict.fromkeys(found))


class FollowedName:
    """Run `run` in a task. tell: is given the targets (address:port) of the name when it is known,
    and then whenever they change; not before it has one. It may raise SettingsError, and is called
    again then. seconds: between two look-ups, at least LEAST_SECONDS.

    The time to live of the records is not followed: a headless service changes before it is over.
    """

    def __init__(
        self, target: NamedTarget, tell: Callable[[list[str]], None], seconds: float = LOOK_UP_SECONDS
    ) -> None:
        self._target, self._tell = target, tell
        self._seconds = max(seconds, LEAST_SECONDS)
        self._lookup = NameLookup(target)
        self._known: list[str] = []
        self._empty_answers = 0
        self._wanted = asyncio.Event()
        self._state = ""

    def soon(self) -> None:
        """Look it up as soon as may be: an address has been lost."""
        self._wanted.set()

    async def run(self) -> None:
        """Follow the name until cancelled. While DNS fails, what is known stays."""
        clock = asyncio.get_running_loop()
        while True:
            self._wanted.clear()
            begin = clock.time()
            try:
                self._take(await self._lookup.addresses())
            except LookupFailed as error:
                self._log(f"cannot be looked up; the {len(self._known)} addresses known stay in use: {error}")
            except SettingsError as error:
                self._log(f"has addresses that cannot be called: {error}")
            await asyncio.sleep(max(0.0, begin + LEAST_SECONDS - clock.time()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(begin + self._seconds):
                    await self._wanted.wait()

    def _take(self, addresses: list[str]) -> None:
        self._empty_answers = 0 if addresses else self._empty_answers + 1
        if not addresses and self._known and self._empty_answers < _EMPTY_ANSWERS:
            return
        more = f", of which the first {MOST_ADDRESSES} are used" if len(addresses) > MOST_ADDRESSES else ""
        self._log(f"has {len(addresses)} addresses{more}")
        found = [self._target.at(address) for address in addresses[:MOST_ADDRESSES]]
        if found != self._known:
            self._tell(found)
            self._known = found

    def _log(self, state: str) -> None:
        """Once for each change: a name is looked up every second."""
        if state != self._state:
            self._state = state
            log.info("%s %s", self._target.authority, state)
