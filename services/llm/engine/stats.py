"""Counters and gauges of the engine."""

from dataclasses import dataclass


@dataclass
class EngineStats:
    """Counters since the start, and gauges (the last four) as of the moment of reading."""

    prefills: int = 0
    """First passes of sequences."""
    extends: int = 0
    """Later passes of several positions, for text that arrived."""
    decode_steps: int = 0
    """Steps in which at least one sequence ran one position."""
    decode_rows: int = 0
    """Positions run in those steps."""
    longest_step_seconds: float = 0.0
    """Longest pass of the model, in seconds. A cancelled sequence stops no later than this.
    """
    running: int = 0
    """Sequences that have begun, those that wait for text included."""
    parked: int = 0
    """Sequences that wait for text, begun or not; they have no place in the batch."""
    waiting: int = 0
    """Sequences that have not begun, those that wait for their first text included."""
    reserved_kv_bytes: int = 0
    """Bytes reserved for keys and values."""

    @property
    def passes(self) -> int:
        """Model passes of any kind, a batch of decode rows counted by its rows."""
        return self.prefills + self.extends + self.decode_rows
