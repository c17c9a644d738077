"""The keys in use, and which of them a secret is."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import SettingsError
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest

MOST_KEYS = 10_000
"""Each request is compared with every key; for more callers there are tokens."""
Digests = NDArray[np.uint64]
"""Four words of each digest, one digest in a row."""


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
