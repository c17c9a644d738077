"""What the engine has done and holds."""

from dataclasses import dataclass


@dataclass
class EngineStats:
    """Counters since the start; gauges (the last four) as of the moment they were asked for."""

    prefills: int = 0
    """First passes."""
    extends: int = 0
    """Later passes of several positions: text that arrived."""
    decode_steps: int = 0
    """Turns in which at least one sequence ran one position."""
    decode_rows: int = 0
    """Positions run in those turns."""
    longest_step_seconds: float = 0.0
    """Longest pass of the model: between two passes the engine looks for sequences that were
    closed.
    """
    running: int = 0
    """Sequences that have begun, those that wait for text included."""
    parked: int = 0
    """Sequences that wait for text, begun or not; they take no place."""
    waiting: int = 0
    """Sequences that have not begun, those that wait for their first text included."""
    reserved_kv_bytes: int = 0

    @property
    def passes(self) -> int:
        """Model passes of any kind, a batch of decode rows counted by its rows."""
        return self.prefills + self.extends + self.decode_rows
