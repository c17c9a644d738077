"""cosyserve: `from cosyserve import Client, AsyncClient` is the client of a streaming
text-to-speech server; the rest of the package is what client and services share.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosyserve.client import AsyncClient, Client, ClientTls

__all__ = ["AsyncClient", "Client", "ClientTls"]

# gRPC logs every orderly shutdown of a connection on stderr; set the variable to see it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def __getattr__(name: str) -> Any:
    # Services import this package without the client.
    if name in __all__:
        return getattr(importlib.import_module("cosyserve.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
