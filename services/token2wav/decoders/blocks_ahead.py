"""The next block of a stream in the flow while the vocoder renders the one before it, on a machine
with a core to spare.

A step takes one block through the flow and then through the vocoder, which leaves a second core
idle. As soon as a block's mel is there, the next one can be begun, if its tokens and their
look-ahead are known: nothing but the past and those tokens decide it, and no tokens that come later
change which tokens it has. So it is made from a fork of the stream, and the step that wants it
finds it. No sample changes.
"""

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.state import FlowState
from services.token2wav.vocoder.state import VocoderState

Span = tuple[int, int]
"""Begin and end of some work, in nanoseconds since the epoch."""
TimedMel = tuple[Tensor | None, Span]
"""The mel of a block, float32 [80, 50], None where the stream was cancelled or has a fault; and
when it was made.
"""


@dataclass(eq=False)
class EarlyBlock:
    """A block that is being made, or was. flow: the stream behind it. until: the position in tokens
    where it ends.
    """

    flow: FlowState
    until: int
    made: "Future[TimedMel]"


class Stream(Protocol):
    """Owned by one thread; only `cancelled` of its parts may be set from another. prompt: int64
    [P]. ahead: what was begun.
    """

    prompt: Tensor
    flow: FlowState
    vocoder: VocoderState
    ahead: EarlyBlock | None


class BlocksAhead:
    """At most one block is under way, whatever the number of streams: who needs the flow next waits
    for no more than that.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="token2wav-ahead")
        self._latest: Future[TimedMel] | None = None

    def begin(self, stream: Stream, tokens: NDArray[np.int64]) -> None:
        """Begin the block behind a stream that stands at a border, if its tokens are known and no
        other block is under way.

        tokens: all generated tokens known. Nothing is begun beside a stream's first sound, which
        should have the machine for itself.
        """
        flow, until = stream.flow, stream.flow.position + CHUNK_TOKENS
        if flow.cancelled or flow.fault is not None or not stream.vocoder.rendered:
            return
        if len(stream.prompt) + len(tokens) < until + LOOKAHEAD_TOKENS or not (
            self._latest is None or self._latest.done()
        ):
            return
        known = torch.cat([stream.prompt, torch.from_numpy(tokens)])
        fork = self._flow.fork(flow)
        self._latest = self._thread.submit(
            self._make, fork, known[flow.position : until], known[until : until + LOOKAHEAD_TOKENS]
        )
        stream.ahead = EarlyBlock(fork, until, self._latest)
        # Whoever cancelled the stream before this line did not see the fork.
        fork.cancelled = fork.cancelled or flow.cancelled

    def _make(self, state: FlowState, tokens: Tensor, lookahead: Tensor) -> TimedMel:
        began = time.time_ns()
        (mel,) = self._flow.blocks([state], [tokens], [lookahead])
        return mel, (began, time.time_ns())


def take_early(stream: Stream, until: int) -> TimedMel | None:
    """The block up to `until` if it was begun early; waits for it, and the stream then stands
    behind it. Raises what the flow raised.
    """
    ahead, stream.ahead = stream.ahead, None
    if ahead is None or ahead.until != until:
        return None
    made = ahead.made.result()
    before, stream.flow = stream.flow, ahead.flow
    # Whoever cancelled the stream between these lines did not see the fork either.
    if before.cancelled:
        stream.flow.cancelled = True
    return made


def core_to_spare(threads: int) -> bool:
    """Whether flow and vocoder, `threads` each, find cores of their own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores >= 2 * threads
