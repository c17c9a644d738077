"""The credential in the metadata of a call."""

from collections.abc import Iterable

from cosyserve.errors import Unauthenticated
from cosyserve.keys.presented import AUTHORIZATION, BEARER, is_presentable
from cosyserve.keys.secret import LONGEST

_PLAIN = ("xi-api-key", "x-api-key")
_HOW = "send `authorization: Bearer KEY`, `xi-api-key: KEY` or `x-api-key: KEY`"


def credential_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The key or token that came with a call. Raises Unauthenticated, which says what is missing
    and quotes nothing.
    """
    found: dict[str, str] = {}
    for name, value in metadata or ():
        if name == AUTHORIZATION and isinstance(value, str):
            scheme, _, key = value.strip().partition(" ")
            if scheme.lower() != BEARER.lower():
                continue
            found.setdefault(key.strip(), name)
        elif name in _PLAIN and isinstance(value, str):
            found.setdefault(value.strip(), name)
    found.pop("", None)
    if not found:
        raise Unauthenticated(f"no API key came with the call; {_HOW}")
    if len(found) > 1:
        raise Unauthenticated(f"the call has {len(found)} different API keys; send one")
    (key,) = found
    if not is_presentable(key):
        raise Unauthenticated(f"the API key is not of 1 to {LONGEST} visible ASCII characters")
    return key
