"""Computes the next flow block of a stream while the vocoder renders the current one, on a machine
with an idle core.

A step runs one block through the flow and then through the vocoder, which leaves a second core
idle. As soon as the mel of a block is ready, the next block can start, provided that its tokens and
their look-ahead are known: it depends only on them and on the past, and later tokens do not change
which tokens it has. The block is computed on a fork of the stream, and the step that needs it takes
the result. No sample changes.
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
from services.token2wav.flow.stream_cache import FlowState
from services.token2wav.vocoder.state import VocoderState

Span = tuple[int, int]
"""Begin and end of some work, in nanoseconds since the epoch."""
TimedMel = tuple[Tensor | None, Span]
"""The mel of a block, float32 [80, 50], and when it was computed. None instead of a mel if the
stream was cancelled or has a fault.
"""


@dataclass(eq=False)
class EarlyBlock:
    """A block whose computation was started early.

    flow: state of the stream after the block. until: position in tokens where the block ends.
    """

    flow: FlowState
    until: int
    future: "Future[TimedMel]"


class Stream(Protocol):
    """Owned by one thread; only `cancelled` of its parts may be set from another one. prompt: int64
    [P]. ahead: the block that was started early.
    """

    prompt: Tensor
    flow: FlowState
    vocoder: VocoderState
    ahead: EarlyBlock | None


class BlocksAhead:
    """Computes at most one early block at a time, so that a stream that needs the flow waits for no
    more than one block.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="token2wav-ahead")
        self._latest: Future[TimedMel] | None = None

    def begin(self, stream: Stream, tokens: NDArray[np.int64]) -> None:
        """Start the next block of a stream whose position is a grid border, if its tokens are known
        and no other block is being computed.

        tokens: all generated tokens known. Before a stream's first audio no block is started,
        because the first audio should have the whole machine.
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
            self._compute, fork, known[flow.position : until], known[until : until + LOOKAHEAD_TOKENS]
        )
        stream.ahead = EarlyBlock(fork, until, self._latest)
        # A thread that cancelled the stream before this line did not see the fork.
        fork.cancelled = fork.cancelled or flow.cancelled

    def _compute(self, state: FlowState, tokens: Tensor, lookahead: Tensor) -> TimedMel:
        began = time.time_ns()
        (mel,) = self._flow.blocks([state], [tokens], [lookahead])
        return mel, (began, time.time_ns())


def take_early(stream: Stream, until: int) -> TimedMel | None:
    """The block up to `until` if it was started early. Waits for it and advances the stream past
    it. Raises what the flow raised.
    """
    ahead, stream.ahead = stream.ahead, None
    if ahead is None or ahead.until != until:
        return None
    result = ahead.future.result()
    before, stream.flow = stream.flow, ahead.flow
    # A thread that cancelled the stream between these lines did not see the fork either.
    if before.cancelled:
        stream.flow.cancelled = True
    return result


def core_to_spare(threads: int) -> bool:
    """Whether flow and vocoder, with `threads` threads each, can run on separate cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores >= 2 * threads
