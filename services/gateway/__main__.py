"""`python -m services.gateway`: serve HTTP and WebSockets until SIGTERM."""

import logging
import os
import resource
import sys

from cosyserve import settings as environment
from cosyserve import telemetry
from cosyserve.errors import SettingsError
from cosyserve.tls.certificate_files import CurrentCertificates, read
from services.gateway.app import application, connection_limits
from services.gateway.serving.listening import listening_socket
from services.gateway.serving.open_connections import SPARE
from services.gateway.serving.server import GatewayServer
from services.gateway.settings import PREFIX, GatewaySettings

log = logging.getLogger(__name__)
_OTHER_FILES = 128


def main() -> int:
    """Returns the exit status: 0 drained, 2 the settings."""
    try:
        settings = environment.load(GatewaySettings, PREFIX, os.environ)
        telemetry.begin_log(settings.log_level)
        # At INFO it writes the address of each WebSocket, which may name a voice or contain a key.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        listening = listening_socket("listen", settings.listen, settings.reader_seconds)
        wyoming, probes = (
            listening_socket(name, address, settings.reader_seconds) if (address := getattr(settings, name)) else None
            for name in ("wyoming_listen", "health_listen")
        )
        certificates = None if settings.served_files is None else CurrentCertificates(settings.served_files, "served")
        if settings.calls is not None:
            read(settings.calls.files)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    telemetry.configure("gateway", scraped=bool(settings.health_listen))
    app = application(settings, wyoming, certificates, probes)
    if wyoming is not None:
        log.info("the gateway serves Wyoming on port %d", wyoming.getsockname()[1])
    _allow_files(settings.max_connections + settings.wyoming_connections + SPARE + _OTHER_FILES)
    log.info("the gateway listens on port %d, for %s", listening.getsockname()[1], settings.orchestrator)
    try:
        GatewayServer(app, settings, connection_limits(settings), certificates).run(sockets=[listening])
    finally:
        telemetry.shutdown()
    return 0


def _allow_files(wanted: int) -> None:
    """Every connection is an open file, of which a process may have 1024 on many systems."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed >= wanted:
        return
    possible = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, most))
    if possible < wanted:
        log.warning("the system allows %d open files, max_connections needs %d", possible, wanted)


if __name__ == "__main__":
    sys.exit(main())
