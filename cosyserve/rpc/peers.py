"""Which callers are on this host or in the networks of the peers."""

import ipaddress
import urllib.parse
from collections.abc import Iterable

from cosyserve.errors import PermissionDenied

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def require_peer(peer: str, networks: Iterable[str], method: str) -> None:
    """Raise PermissionDenied unless `peer` is on the host of the service or in one of `networks`.

    peer: as gRPC names it, such as `ipv4:10.1.2.3:50123`. networks: in CIDR form.
    """
    if peer.startswith("unix:"):
        return
    address = _address_of(peer)
    if address is None or not (
        address.is_loopback or any(address in ipaddress.ip_network(network) for network in networks)
    ):
        raise PermissionDenied(
            f"{method} may be called from the host of the service and from its peers alone, this call is from {peer}"
        )


def host_of(peer: str) -> str:
    """The host of a caller that gRPC names `peer`: its IPv4 address, the /64 network of its IPv6
    address (one host may use any address in it), or `peer` itself without an address.
    """
    address = _address_of(peer)
    if address is None:
        return peer
    return str(address) if address.version == 4 else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


def _address_of(peer: str) -> Address | None:
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    try:
        address = ipaddress.ip_address(rest.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
