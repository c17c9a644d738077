"""The key that a caller of the gateway presents, which goes on to the speech service unread."""

from starlette.requests import HTTPConnection

from cosyserve.errors import Unauthenticated
from cosyserve.keys.presented import AUTHORIZATION, BEARER, is_presentable

_HEADERS = ("xi-api-key", "x-api-key")
QUERY = "api_key"
"""Of a WebSocket's address: browsers can give a WebSocket no headers."""


def key_of(connection: HTTPConnection) -> str:
    """The key in `authorization: Bearer`, else in `xi-api-key` or `x-api-key`, else in the address
    of a WebSocket; empty if there is none. Raises Unauthenticated for one that no header can carry.
    """
    candidates = [bearer_of(connection.headers.get(AUTHORIZATION, ""))]
    candidates += [connection.headers.get(name, "") for name in _HEADERS]
    if connection.scope["type"] == "websocket":
        candidates.append(connection.query_params.get(QUERY, ""))
    return checked(next((key.strip() for key in candidates if key.strip()), ""))


def checked(key: str) -> str:
    """`key`, which may be empty. Raises Unauthenticated for one that no header can carry."""
    if key and not is_presentable(key):
        raise Unauthenticated("the API key is not of visible ASCII characters")
    return key


def bearer_of(value: str) -> str:
    """The key in the value of an authorization field; empty for another scheme."""
    scheme, _, key = value.strip().partition(" ")
    return key.strip() if scheme.lower() == BEARER.lower() else ""
