"""Which targets are names, whose addresses may change, and which are addresses."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

_NO_NAMES: Final = ("unix:", "unix-abstract:", "vsock:", "ipv4:", "ipv6:", "xds:")
_NAMED: Final = re.compile(r"(?:dns:(?://(?P<server>[^/]*)/)?)?(?P<host>[^:/\[\]\s]+):(?P<port>\d+)")
_DNS_PORT: Final = 53


@dataclass(frozen=True)
class NamedTarget:
    """A name and the port that every one of its addresses has."""

    host: str
    port: int
    server: tuple[str, int] | None = None
    """Address and port of the DNS server to ask; None: the hosts file and the servers of this
    host.
    """

    rooted: bool = False
    """Whether it was written with a dot at its end, so that no search list applies."""

    @property
    def authority(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"

    def at(self, address: str) -> str:
        """The target of one of its addresses."""
        return f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"


def named_target(target: str) -> NamedTarget | None:
    """The name of host:port, dns:///host:port or dns://server/host:port (RFC 4501 as gRPC reads
    it); None for what is no name: an address, a Unix socket, another scheme. Raises ValueError for
    a dns: target that is of another form.
    """
    match = None if target.startswith(_NO_NAMES) else _NAMED.fullmatch(target)
    if match is None:
        if target.startswith("dns:") and not re.fullmatch(r"dns:(///)?\[[^\]]+\]:\d+", target):
            raise ValueError(f"{target!r} is not dns:///name:port")
        return None
    host, port = match["host"], int(match["port"])
    if not 0 < port < 65_536:
        raise ValueError(f"{target!r} has port {port}, allowed are 1 to 65535")
    if _is_address(host):
        return None
    return NamedTarget(host.removesuffix("."), port, _server(match["server"], target), host.endswith("."))


def _server(text: str | None, target: str) -> tuple[str, int] | None:
    if not text:
        return None
    address, _, port = text.rpartition(":") if re.search(r"(^[^:]+|\]):\d+$", text) else (text, "", str(_DNS_PORT))
    address = address.strip("[]")
    if not _is_address(address):
        raise ValueError(f"{target!r} names {text!r} as its DNS server, expected an IP address, or address:port")
    return address, int(port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
