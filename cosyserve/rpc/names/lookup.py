"""One look-up of a name: in the hosts file, then in DNS, without a thread.

The DNS client is dnspython: `loop.getaddrinfo` would hold a thread of the executor for as long as a
DNS server is silent, and cannot ask a server that the target names (docs/decisions/0030).
"""

import ipaddress
import socket
from typing import Final

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.resolver

from cosyserve.rpc.names.hosts_file import listed_addresses
from cosyserve.rpc.names.target import NamedTarget

_TRY_SECONDS: Final = 0.8
"""Wait for one answer: a datagram may be lost, and the next try still has to be in time."""
_ALL_SECONDS: Final = 2.4


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
