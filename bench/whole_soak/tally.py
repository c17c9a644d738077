"""What became of the requests, by kind."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

HEARD, HUNG_UP, REFUSED = "heard", "hung up", "refused"
"""refused: as it should be, for what is wrong with the request, its key or its caller's limit, or
because every place was taken.
"""


@dataclass
class Tally:
    """outcomes: by kind of request and outcome. errors: what should not have happened, by kind and
    message.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """That are over, however they ended."""
        return self.outcomes.total() + self.errors.total()

    async def count(self, kind: str, ask: Callable[[], Awaitable[str]]) -> bool:
        """Whether the request ended as it should."""
        try:
            outcome = await ask()
        except Exception as error:
            text = getattr(error, "message", "") or str(error) or "no text"
            self.errors[f"{kind}: {type(error).__name__}: {text}"] += 1
            return False
        self.outcomes[kind, outcome] += 1
        return True

    def by_kind(self) -> dict[str, dict[str, int]]:
        """Outcomes of each kind."""
        kinds: dict[str, dict[str, int]] = {}
        for (kind, outcome), count in sorted(self.outcomes.items()):
            kinds.setdefault(kind, {})[outcome] = count
        return kinds
