"""How many voices are stored, in all and of each tenant."""

from collections.abc import Sequence
from dataclasses import dataclass

from cosyserve.errors import InternalFault, Overloaded
from services.frontend.voices.voice_store import VoiceStore

_READ_AT_ONCE = 1_000


@dataclass(frozen=True)
class VoiceLimits:
    """The largest numbers; a voice of everyone counts as one of all."""

    all: int = 10_000
    of_a_tenant: int = 1_000

    def require_room(self, store: VoiceStore, owner: str) -> None:
        """Raise Overloaded if no further voice of this tenant can be stored; empty: of everyone.
        Blocks on the storage.
        """
        ids = store.ids()
        if len(ids) >= self.all:
            raise Overloaded(f"there are {len(ids)} voices, allowed are {self.all}; delete some first")
        # Where there are fewer voices in all, the tenant has fewer: no entry is read.
        if not owner or len(ids) < self.of_a_tenant:
            return
        count = 0
        for first in range(0, len(ids), _READ_AT_ONCE):
            count += _owned(store, ids[first : first + _READ_AT_ONCE], owner)
            if count >= self.of_a_tenant:
                raise Overloaded(
                    f"this tenant has at least {count} voices, allowed are {self.of_a_tenant}; delete some first"
                )


def _owned(store: VoiceStore, ids: Sequence[str], owner: str) -> int:
    """How many of the voices are the owner's. A damaged entry counts for no tenant: requests for
    that voice say what is wrong.
    """
    try:
        return sum(entry.owner == owner for entry in store.entries(ids))
    except InternalFault:
        return sum(_owned(store, [each], owner) for each in ids) if len(ids) > 1 else 0
