"""Settings of the gateway: variables COSYSERVE_GATEWAY_*."""

import logging
from dataclasses import dataclass
from pathlib import Path

from cosyserve.keys.exposure import is_loopback, require_protected
from cosyserve.settings import require_range
from cosyserve.tls.settings import CallingTlsSettings, ServedTlsSettings

PREFIX = "COSYSERVE_GATEWAY_"


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(ServedTlsSettings, CallingTlsSettings):
    """All settings of the gateway."""

    orchestrator: str
    """Address of the public gRPC service: host:port, dns:///name:port, whose calls are spread over
    all servers behind the name, another gRPC target, or several of these, comma separated.
    """
    orchestrator_connections: int = 1
    """Connections to each address of the orchestrator, 1 to 256: one of several processes
    (COSYSERVE_ORCHESTRATOR_PROCESSES) has the calls of a connection, so four times as many as there
    are processes reach all of them.
    """
    listen: str = "127.0.0.1:8080"
    """host:port to listen on; port 0 takes a free one."""
    insecure: bool = False
    """Whether callers without a key may be served on an address that other machines reach."""
    require_key: bool = False
    """Whether requests without any key are refused before their body is read: the speech service
    has keys.
    """
    root_path: str = ""
    """Path under which a proxy publishes the gateway, such as /tts; empty: the root."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages a browser lets call the gateway (CORS), such as https://app.example; `*`
    means all. None: only the gateway's own page.
    """
    max_body_bytes: int = 22 * 1024 * 1024
    """Largest request body in bytes, 65536 to 268435456: room for two recordings of 10 MiB."""
    max_bodies: int = 8
    """Request bodies received at once, 1 to 1024, each of which may hold max_body_bytes; further
    ones wait.
    """
    head_seconds: float = 15.0
    """Seconds, 0.1 to 600, in which the head of a request must arrive, the first of a connection
    counted from its start.
    """
    keep_alive_seconds: float = 75.0
    """Seconds, 1 to 3600, that a connection is kept for a further request."""
    body_seconds: float = 30.0
    """Seconds, 0.1 to 600, in which a request body must arrive, and for which it waits for its
    turn.
    """
    reader_seconds: float = 60.0
    """Seconds, 0.1 to 600, after which a caller that reads no audio is disconnected."""
    max_held_bytes: int = 256 * 1024 * 1024
    """Audio of whole files held at once, in bytes, 1048576 to 68719476736; further ones are refused
    with 429.
    """
    max_connections: int = 4_096
    """Most connections at once, 1 to 65536, and most requests; further requests are answered with
    503. For a further connection, the one that has waited longest for a request is closed.
    """
    max_websockets: int = 1_024
    """Most WebSockets at once, 1 to 65536; further ones are answered with 503."""
    websocket_idle_seconds: float = 180.0
    """Seconds, 0.1 to 86400, after which a WebSocket on which nothing is spoken is closed."""
    wyoming_listen: str = ""
    """host:port for the protocol of Home Assistant's voice services, such as 127.0.0.1:10200; port
    0 takes a free one. Empty: it is not served.
    """
    wyoming_plain: bool = False
    """Whether Wyoming stays plaintext where tls_certificate is set: Home Assistant has no TLS for
    it.
    """
    wyoming_api_key_file: Path | None = None
    """File with the API key for which the callers of Wyoming speak: their protocol has none."""
    wyoming_connections: int = 64
    """Most connections of Wyoming at once, 1 to 65536; a further one gets an error."""
    drain_seconds: float = 30.0
    """Seconds, 0 to 3600, that requests and the utterances of WebSockets may continue after
    SIGTERM.
    """
    log_level: str = "INFO"
    """Name of a level of the logging module."""

    def __post_init__(self) -> None:
        super().__post_init__()
        CallingTlsSettings.__post_init__(self)
        for name, least, most in (
            ("max_body_bytes", 1 << 16, 1 << 28),
            ("max_bodies", 1, 1_024),
            ("max_held_bytes", 1 << 20, 1 << 36),
            ("head_seconds", 0.1, 600.0),
            ("keep_alive_seconds", 1.0, 3_600.0),
            ("body_seconds", 0.1, 600.0),
            ("reader_seconds", 0.1, 600.0),
            ("orchestrator_connections", 1, 256),
            ("max_connections", 1, 65_536),
            ("max_websockets", 1, 65_536),
            ("websocket_idle_seconds", 0.1, 86_400.0),
            ("wyoming_connections", 1, 65_536),
            ("drain_seconds", 0.0, 3_600.0),
        ):
            message = "{name} is {value:g}, allowed are {least:g} to {most:g}"
            require_range(self, [name], message, least=least, most=most)
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ValueError(f"root_path is {self.root_path!r}; it begins with / and does not end with it")
        for name in ("listen", "wyoming_listen"):
            address = getattr(self, name)
            host, _, port = address.rpartition(":")
            if (address or name == "listen") and (not host or not port.isdecimal() or int(port) > 65_535):
                raise ValueError(f"{name} is {address!r}, which is not host:port")
        self._require_protection()
        levels = logging.getLevelNamesMapping()
        if self.log_level.upper() not in levels:
            raise ValueError(f"log_level is {self.log_level!r}, allowed are {', '.join(levels)}")

    def _require_protection(self) -> None:
        """The speech service itself wants keys where other machines reach it; on the loopback it
        may serve this gateway without.
        """
        keys = self.require_key or not any(is_loopback(each.strip()) for each in self.orchestrator.split(","))
        ways = "say that the speech service has keys (REQUIRE_KEY=true), or that this is wanted (INSECURE=true)"
        require_protected(self.listen, keys=keys, insecure=self.insecure, ways=ways)
        if self.wyoming_listen:
            keys = self.wyoming_api_key_file is not None
            ways = "name the file of a key for them (WYOMING_API_KEY_FILE), or say that this is wanted (INSECURE=true)"
            require_protected(self.wyoming_listen, keys=keys, insecure=self.insecure, ways=ways)
