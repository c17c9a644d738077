"""The start and end of a finished piece of work, as engines report it. Plain data, so that engines
need no tracing library.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Timing:
    """Name of the span, wall-clock start and end in nanoseconds since the epoch."""

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6
