"""Where a service may listen without keys: on the loopback, which other machines cannot reach."""

import ipaddress
import re

_RESOLVER = re.compile(r"^(dns:(//[^/]*/)?|ipv4:|ipv6:)")


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `address`: host:port, or a gRPC target such as
    dns:///host:port and unix:path. A name other than localhost counts as reachable.
    """
    address = _RESOLVER.sub("", address)
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def require_protected(address: str, *, keys: bool, insecure: bool, ways: str) -> None:
    """Raise ValueError for an address that other machines reach while no keys are set. insecure:
    whether that is wanted by name. ways: what to set, for people.
    """
    if not (keys or insecure or is_loopback(address)):
        raise ValueError(
            f"{address} can be reached from other machines, and without API keys every caller there could speak, "
            f"make voices and delete them; {ways}"
        )
