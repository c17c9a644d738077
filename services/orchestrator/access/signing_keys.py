"""The public keys with which an identity provider signs tokens (JWKS, RFC 7517), from a file or an
address.
"""

import asyncio
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError, Unavailable
from cosyserve.keys.exposure import is_loopback

log = logging.getLogger(__name__)
_MOST_BYTES = 1 << 20
_FETCH_SECONDS = 5.0
FRESH_SECONDS = 300.0
"""How long keys are used before they are fetched again."""
LEAST_SECONDS = 10.0
"""Shortest time between two fetches, however many tokens name a key that is not known."""
_RETRY_SECONDS = 1.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class SigningKeys:
    """source: path of a file, or an https address; http only on the loopback. Raises SettingsError
    for another one, and for a file that cannot be used. fetch: the bytes of `source`; it blocks.
    now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        source: str,
        fetch: Callable[[str], bytes] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._now = source, now
        self._fetch = fetch or _fetch
        self._keys: Mapping[str, Any] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._fetching: asyncio.Task[None] | None = None
        if "://" in source:
            _require_private(source)
        else:
            self._take(self._fetch(source))

    async def key(self, name: str) -> Any | None:
        """The key of this id, of a set with one key also for an empty id; None if there is none.
        Raises Unavailable while keys were never fetched. A set that cannot be fetched again is used
        on.
        """
        now = self._now()
        stale = self._fetched is None or now - self._fetched >= FRESH_SECONDS
        if (stale or self._find(name) is None) and (self._tried is None or now - self._tried >= LEAST_SECONDS):
            self._tried = now
            self._fetching = asyncio.create_task(self._refresh())
        if self._fetching is not None and not self._fetching.done() and (stale or self._find(name) is None):
            # A caller that hangs up must not cancel the fetch of the others.
            await asyncio.wait((self._fetching,), timeout=_FETCH_SECONDS)
        if self._fetched is None:
            raise Unavailable("the keys that tokens are checked with cannot be fetched", retry_after=_RETRY_SECONDS)
        return self._find(name)

    def _find(self, name: str) -> Any | None:
        return next(iter(self._keys.values())) if not name and len(self._keys) == 1 else self._keys.get(name)

    async def _refresh(self) -> None:
        try:
            self._take(await asyncio.to_thread(self._fetch, self._source))
        except SettingsError as error:
            log.error("the keys that tokens are checked with stay as they were: %s", error)

    def _take(self, data: bytes) -> None:
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        try:
            listed = json.loads(data)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SettingsError(f"{self._source} is no JSON Web Key Set") from None
        keys = {}
        for values in listed:
            # A secret in place of a public key would let every reader of the set sign tokens.
            if not isinstance(values, dict) or values.get("kty") not in ("RSA", "EC", "OKP"):
                continue
            try:
                keys[str(values.get("kid", ""))] = PyJWK(values)
            except PyJWTError as error:
                log.warning("a key of %s is not used: %s", self._source, type(error).__name__)
        if not keys:
            raise SettingsError(f"{self._source} has no key of RSA, EC or Ed25519")
        self._keys, self._fetched = keys, self._now()


def _require_private(source: str) -> None:
    parts = urllib.parse.urlsplit(source)
    local = parts.scheme == "http" and is_loopback(f"{parts.hostname or ''}:0")
    if parts.scheme != "https" and not local:
        raise SettingsError(f"the address of a JSON Web Key Set is {source!r}; https is expected")


def _fetch(source: str) -> bytes:
    """Raises SettingsError."""
    try:
        if "://" not in source:
            with Path(source).open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        else:
            opener = urllib.request.build_opener(_NoRedirects)
            with opener.open(source, timeout=_FETCH_SECONDS) as answer:  # the scheme was checked
                data = answer.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise SettingsError(f"{source} cannot be read: {reason}") from error
    if len(data) > _MOST_BYTES:
        raise SettingsError(f"{source} has more than the {_MOST_BYTES} bytes allowed")
    return data
