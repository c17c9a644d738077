"""A second orchestrator in front of the same stages, which wants a client certificate and a key."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from cosyserve.host.supervision.child import Child
from cosyserve.host.supervision.layout import free_ports
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest, new_secret
from tools.certificates import HERE, Authority, Folder

_CALLER = "spiffe://cosyserve.clients/caller"


@contextlib.asynccontextmanager
async def guarded_orchestrator(stages: Mapping[str, str], folder: Path) -> AsyncIterator[None]:
    """SERVING while the block runs. stages: host:port by name. folder: an empty one, in which
    clients find `address` (localhost:port), `key`, and their certificate as `tls.crt`, `tls.key`
    and `ca.crt`; `stranger` below it has those of another authority.
    """
    own = Folder(folder).put((authority := Authority()).issue((*HERE, _CALLER)), authority.pem)
    Folder(folder / "stranger").put(Authority().issue((*HERE, _CALLER)), authority.pem)
    secret, port, probes = new_secret(), free_ports(1)[0], f"unix:{folder}/probes"
    _write(folder / "address", f"localhost:{port}")
    _write(folder / "key", secret)
    values = {
        **{stage.upper(): address for stage, address in stages.items()},
        "LISTEN": f"127.0.0.1:{port}",
        "LOCAL_LISTEN": probes,
        "DRAIN_SECONDS": "1",
        "ADAPTIVE_LIMIT": "off",
        "TLS_CERTIFICATE": str(own.certificate),
        "TLS_KEY": str(own.key),
        "TLS_CLIENT_CA": str(own.ca),
        "TLS_CLIENT_NAMES": _CALLER,
        "KEYS": json.dumps({"keys": [KeyRecord("clients", digest(secret)).as_dict()]}),
    }
    environ = {**os.environ, **{f"COSYSERVE_ORCHESTRATOR_{name}": value for name, value in values.items()}}
    child = await Child.start("services.orchestrator", "guarded orchestrator", probes, environ, _show_trouble)
    try:
        async with asyncio.timeout(60.0):
            await child.until_serving()
        yield
    finally:
        child.process.terminate()
        await child.ended()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
    path.chmod(0o600)


def _show_trouble(line: str) -> None:
    if " WARNING " in line or " ERROR " in line:
        print(line, file=sys.stderr)
