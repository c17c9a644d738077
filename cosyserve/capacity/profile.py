"""What the engines take on one GPU, as a function of how much is asked of them: the figures from
which capacity is planned and simulated.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

CHUNK_POSITIONS = 256
"""Positions of prompts that one prefill chunk takes."""


@dataclass(frozen=True)
class HostCosts:
    """Processor time of the services that use no GPU, in seconds of one core."""

    frontend_per_request: float
    orchestrator_per_second: float
    """Of sound."""
    gateway_per_second: float


@dataclass(frozen=True)
class Planning:
    """Seconds that token2wav's scheduler takes between two steps, while its GPU waits: of each
    step, of each open stream, and of each stream in the step.
    """

    step: float
    stream: float
    taking_part: float

    def seconds(self, streams: int, taking_part: int) -> float:
        """With so many open streams, of which so many take part."""
        return self.step + self.stream * streams + self.taking_part * taking_part


@dataclass(frozen=True)
class Contention:
    """How many times longer work takes while the other engine works on the same GPU.

    flow: a step of token2wav by its blocks; beyond the largest measured number, as that one.
    decode: a step of the speech-token LLM.
    """

    flow: Mapping[int, float]
    decode: float

    def of_flow(self, blocks: int) -> float:
        """Of a step of so many blocks."""
        return self.flow[_nearest_below(self.flow, blocks)]


@dataclass(frozen=True)
class EngineProfile:
    """Seconds and bytes. name: of the machine.

    decode: a step of the LLM by its rows. prefill: a chunk of prompts. flow: a pass of token2wav by
    its blocks and by the blocks of a stream up to the computed one. recompute: a stream of so many
    blocks without kept state. vocoder: by windows. host: what a step of token2wav takes besides the
    device, by its blocks; between the measured numbers along a straight line. block_bytes: state of
    a block. memory: bytes of the GPU. llm_bytes, token2wav_bytes: what each engine takes without
    streams. row_bytes: keys and values of a position of the LLM. sources: where each part comes
    from.
    """

    name: str
    decode: Mapping[int, float]
    prefill: float
    flow: Mapping[tuple[int, int], float]
    recompute: Mapping[int, float]
    vocoder: Mapping[int, float]
    contention: Contention
    planning: Planning
    hosts: HostCosts
    block_bytes: int
    memory: int
    llm_bytes: int
    token2wav_bytes: int
    row_bytes: int
    host: Mapping[int, float]
    sources: Mapping[str, str] = field(default_factory=dict)

    def decode_step(self, rows: int) -> float:
        """A step of the LLM with so many rows."""
        return self.decode[_bucket(self.decode, rows)] * _times(self.decode, rows)

    @property
    def most_rows(self) -> int:
        """Rows of the largest measured step."""
        return max(self.decode)

    @property
    def most_blocks(self) -> int:
        """Blocks of the largest measured pass of the flow."""
        return max(blocks for blocks, _ in self.flow)

    def flow_pass(self, blocks: int, behind: float) -> float:
        """A pass of `blocks` blocks whose streams have `behind` blocks each on average, the
        computed one included; between the measured lengths along a straight line.
        """
        sizes = {size: None for size, _ in self.flow}
        size = _bucket(sizes, blocks)
        known = sorted((length, seconds) for (each, length), seconds in self.flow.items() if each == size)
        return _interpolated(known, behind) * _times(sizes, blocks)

    def recomputed(self, blocks: int) -> float:
        """A stream of so many blocks from its first one on."""
        return self.recompute[_bucket(self.recompute, blocks)] * _times(self.recompute, blocks)

    def vocoder_pass(self, windows: int) -> float:
        """So many windows, one of each stream."""
        return self.vocoder[_bucket(self.vocoder, windows)] * _times(self.vocoder, windows)

    def host_step(self, blocks: int) -> float:
        """Of a step of so many blocks."""
        return _interpolated(sorted(self.host.items()), blocks)


def _bucket(sizes: Mapping[int, object], size: int) -> int:
    """The smallest measured size that holds `size`, or the largest."""
    return min((each for each in sizes if each >= size), default=max(sizes))


def _times(sizes: Mapping[int, object], size: int) -> int:
    """How many passes of the largest size `size` takes."""
    return max(-(-size // max(sizes)), 1)


def _nearest_below(sizes: Mapping[int, object], size: int) -> int:
    return max((each for each in sizes if each <= size), default=min(sizes))


def _interpolated(known: list[tuple[int, float]], at: float) -> float:
    place = bisect_left(known, (at,))
    if place == 0 or len(known) == 1:
        return known[0][1]
    (low, first), (high, second) = known[min(place, len(known) - 1) - 1 :][:2]
    # Beyond the longest measured one the cost goes on growing as it did before it.
    return first + (second - first) * (at - low) / (high - low)
