"""The keys in use, which may be those of a file that is read again when it has changed, and which
of them a secret is.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import SettingsError
from cosyserve.keys import key_file
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest

MOST_KEYS = 10_000
"""Each request is compared with every key; for more callers there are tokens."""
Digests = NDArray[np.uint64]
"""Four words of each digest, one digest in a row."""
log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
"""How old what is known of the file may be when a call is checked: a key that was revoked is
refused after this time.
"""
_LONGEST_LOOK_SECONDS = 2.0
Fingerprint = tuple[int, int, int]


class KeyRing:
    """Raises SettingsError for more than 10,000 keys."""

    def __init__(self, records: Sequence[KeyRecord]) -> None:
        if len(records) > MOST_KEYS:
            raise SettingsError(f"there are {len(records)} keys, allowed are at most {MOST_KEYS}")
        self._records: tuple[KeyRecord | None, ...] = (None, *records)
        self._digests = _words("".join(record.sha256 for record in records))
        self._places = np.arange(1, len(records) + 1)

    def __len__(self) -> int:
        return len(self._places)

    async def ring(self) -> Self:
        """As of `WatchedKeys`: these keys do not change."""
        return self

    def find(self, secret: str) -> KeyRecord | None:
        """The key of this secret, also an expired one. The time that it takes depends on the number
        of keys and the length of `secret`, and neither on whether one matches nor on which.
        """
        equal = equal_rows(self._digests, _words(digest(secret)))
        # A copy touches each record, so that the one which is returned comes from no slower memory.
        return list(self._records)[int(equal @ self._places)]


def equal_rows(digests: Digests, one: Digests) -> NDArray[np.int64]:
    """1 for each row that is `one`, else 0. Every word of every row is compared, without a branch
    that depends on what is compared.
    """
    differences: Digests = np.bitwise_or.reduce(digests ^ one, axis=1)
    equal: NDArray[np.int64] = (differences == 0).astype(np.int64)
    return equal


def _words(digests: str) -> Digests:
    return np.frombuffer(bytes.fromhex(digests), np.uint64).reshape(-1, 4)


class WatchedKeys:
    """Reads the file when created; raises SettingsError if it cannot be used. A later file that
    cannot be used leaves the keys as they are, and an error in the log. now: a monotonic clock, in
    seconds.
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now = path, now
        self._seen = self._fingerprint()
        self._ring = KeyRing(key_file.read(path))
        self._looked = now()
        self._looking: asyncio.Task[None] | None = None
        log.info("%d API keys from %s", len(self._ring), path)

    async def ring(self) -> KeyRing:
        """The keys as they were in the file at most a second ago. Looking at the file and reading
        it happen in a thread, once for all calls that wait for it.
        """
        if self._now() - self._looked >= LOOK_SECONDS:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            # A caller that hangs up must not cancel the look of the others.
            await asyncio.wait((self._looking,), timeout=_LONGEST_LOOK_SECONDS)
        return self._ring

    async def _look(self) -> None:
        begun = self._now()
        try:
            changed, ring = await asyncio.to_thread(self._read_if_changed)
            if ring is not None:
                self._ring, self._seen = ring, changed
                log.info("the keys file has changed: %d API keys", len(ring))
        except SettingsError as error:
            log.error("the API keys stay as they were: %s", error)
        finally:
            self._looked = begun

    def _read_if_changed(self) -> tuple[Fingerprint | None, KeyRing | None]:
        found = self._fingerprint()
        if found == self._seen:
            return found, None
        # Also a file that cannot be used is looked at once, so that it is one line in the log.
        self._seen = found
        return found, KeyRing(key_file.read(self._path))

    def _fingerprint(self) -> Fingerprint | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - follows the links of a mounted Secret
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
