"""The keys in use, and which of them a secret is."""

import hmac
import operator
from collections.abc import Sequence

from cosyserve.errors import SettingsError
from cosyserve.keys.key_record import KeyRecord
from cosyserve.keys.secret import digest

MOST_KEYS = 10_000
"""Each request is compared with every key, a tenth of a microsecond for one; for more callers
there are tokens.
"""


class KeyRing:
    """Raises SettingsError for more than 10,000 keys."""

    def __init__(self, records: Sequence[KeyRecord]) -> None:
        if len(records) > MOST_KEYS:
            raise SettingsError(f"there are {len(records)} keys, allowed are at most {MOST_KEYS}")
        self._records: tuple[KeyRecord | None, ...] = (None, *records)
        self._places = range(1, len(records) + 1)
        self._known = tuple((record.sha256.encode(), record) for record in records)

    def __len__(self) -> int:
        return len(self._known)

    def find(self, secret: str) -> KeyRecord | None:
        """The key of this secret, also an expired one. The time that it takes depends on the number
        of keys and the length of `secret`, and neither on whether one matches nor on which.
        """
        given = digest(secret).encode()
        # Each record is touched, so that the one that is returned is in no other cache than others.
        matches = [hmac.compare_digest(known, given) for known, _record in self._known]
        return self._records[sum(map(operator.mul, self._places, matches))]
