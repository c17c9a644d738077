"""The settings of every gRPC service."""

import ipaddress
import logging
import sys
from dataclasses import dataclass

from cosyserve.settings import require_range
from cosyserve.tls.settings import ServedTlsSettings


@dataclass(frozen=True, kw_only=True)
class ServerSettings(ServedTlsSettings):
    """Settings of every service; each service adds its own fields."""

    listen: str
    """host:port to listen on; port 0 takes a free one."""
    local_listen: str = ""
    """unix:/path of a socket on which the service is served as well, in plaintext: for callers on
    this host whom the permissions of its folder let through. Empty: none.
    """
    drain_seconds: float = 30.0
    """Seconds that accepted calls may continue after SIGTERM; not negative."""
    max_message_bytes: int = 16 * 1024 * 1024
    """Largest message in bytes, 65536 to 2147483647."""
    max_connections: int = 1_024
    """Most connections at once, 1 to 65536; a further one is closed when it is accepted."""
    max_streams_per_connection: int = 1_024
    """Most calls at once on one connection, 1 to 65536; a gRPC client queues further ones."""
    max_incoming_messages: int = 16
    """First messages received at once, 1 to 1024, each of which may hold max_message_bytes; other
    calls wait for their turn.
    """
    first_message_seconds: float = 30.0
    """Seconds, 0.1 to 600, after which a call without a complete first message ends with
    DEADLINE_EXCEEDED.
    """
    warm_up_from: tuple[str, ...] = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
    """Networks (CIDR) whose hosts may call WarmUp, in addition to this host: where the
    orchestrators run.
    """
    log_level: str = "INFO"
    """Name of a level of the logging module."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_listen and not self.local_listen.startswith("unix:/"):
            raise ValueError(f"local_listen is {self.local_listen!r}, expected unix:/path")
        require_range(
            self, ["drain_seconds"], "{name} is {value:g}; it must not be negative", least=0, most=sys.float_info.max
        )
        in_bytes = "{name} is {value}, allowed are {least} to {most}"
        require_range(self, ["max_message_bytes"], in_bytes, least=1 << 16, most=(1 << 31) - 1)
        for name, least, most in (
            ("max_connections", 1, 65_536),
            ("max_streams_per_connection", 1, 65_536),
            ("max_incoming_messages", 1, 1_024),
            ("first_message_seconds", 0.1, 600.0),
        ):
            message = "{name} is {value:g}, allowed are {least:g} to {most:g}"
            require_range(self, [name], message, least=least, most=most)
        for network in self.warm_up_from:
            ipaddress.ip_network(network)
        levels = logging.getLevelNamesMapping()
        if self.log_level.upper() not in levels:
            raise ValueError(f"log_level is {self.log_level!r}, allowed are {', '.join(levels)}")
