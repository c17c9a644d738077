"""The keys of a file, read again when it has changed."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.keys import key_file
from services.orchestrator.access.key_ring import KeyRing

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
"""How old what is known of the file may be when a call is checked: a key that was revoked is
refused after this time.
"""
_LONGEST_LOOK_SECONDS = 2.0
Fingerprint = tuple[int, int, int]


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
