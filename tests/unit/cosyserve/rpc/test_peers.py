"""Who may have a service warmed up: callers on its host, and those of the networks it was told."""

import pytest

from cosyserve.errors import PermissionDenied
from cosyserve.rpc.peers import Peers


@pytest.mark.parametrize(
    "peer", ["ipv4:127.0.0.1:50123", "ipv6:%5B::1%5D:50123", "ipv6:[::ffff:127.0.0.1]:5", "unix:", "unix:/run/x.sock"]
)
def test_this_host_always_may(peer: str) -> None:
    Peers(()).require(peer, "WarmUp")


@pytest.mark.parametrize("peer", ["ipv4:10.1.2.3:50123", "ipv6:[::ffff:10.1.2.3]:5", "ipv6:%5Bfc00::7%5D:1"])
def test_peers_may_where_their_network_is_named(peer: str) -> None:
    Peers(("10.0.0.0/8", "fc00::/7")).require(peer, "WarmUp")
    with pytest.raises(PermissionDenied, match="WarmUp may be called from the host of the service"):
        Peers(()).require(peer, "WarmUp")


@pytest.mark.parametrize("peer", ["ipv4:8.8.8.8:443", "ipv6:[2001:db8::1]:443", "vsock:3:4", "ipv4:nonsense", ""])
def test_others_may_not(peer: str) -> None:
    with pytest.raises(PermissionDenied):
        Peers(("10.0.0.0/8",)).require(peer, "WarmUp")
