"""Whose calls come from this host or from where the stages' callers are."""

import ipaddress
import urllib.parse
from collections.abc import Sequence

from cosyserve.errors import PermissionDenied

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Peers:
    """networks: in CIDR form, beside the loopback addresses. Raises ValueError for what is no
    network.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def require(self, peer: str, method: str) -> None:
        """peer: as gRPC names it, e.g. `ipv4:10.1.2.3:50123`. Raises PermissionDenied for one of
        elsewhere.
        """
        if peer.startswith("unix:"):
            return
        address = _address_of(peer)
        if address is None or not (address.is_loopback or any(address in network for network in self._networks)):
            raise PermissionDenied(
                f"{method} may be called from the host of the service and from its peers alone, this call is from "
                f"{peer}"
            )


def host_of(peer: str) -> str:
    """What stands for the host of a caller that gRPC names `peer`: its IPv4 address, the network of
    64 bits in which its IPv6 address is (one host may take any of them), `peer` itself when it has
    no address."""
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
