"""Flow state behind a voice's prompt, kept for the next request with the same voice."""

from collections import OrderedDict

from services.token2wav.flow.state import FlowState


class PromptCache:
    """Least recently used states are dropped when all together exceed `limit_bytes`; 0 keeps none.

    Changed by one thread; any may ask what is in it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept: OrderedDict[str, FlowState] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Memory of all states kept, at most the limit."""
        return sum(state.bytes for state in self._kept.values())

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str) -> FlowState | None:
        """The state kept under `key`; fork it before use."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: str, state: FlowState) -> None:
        """Keep `state`, which nobody may change any more, unless it alone exceeds the limit."""
        if state.bytes > self._limit:
            return
        self._kept[key] = state
        while self.bytes > self._limit:
            self._kept.popitem(last=False)
