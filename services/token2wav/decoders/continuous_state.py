"""The state of one stream between steps in the served profile, and its next flow block, which is
computed while the vocoder renders the current one if a core is idle.
"""

import os
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.inputs.chunking import Grid
from services.token2wav.vocoder.state import VocoderState
from services.token2wav.vocoder.time_stretch import MelStretch

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


@dataclass(eq=False)
class ContinuousState:
    """The state of one stream, owned by one thread; only `cancel` may be called from another one.
    prompt: int64 [P]. prompt_cached: see `StreamState`.
    """

    prompt: Tensor
    grid: Grid
    key: str
    """Cache key of the state at the end of the prompt; empty: it is not cached."""
    flow: FlowState
    stretch: MelStretch
    vocoder: VocoderState
    cached: "weakref.ref[FlowState] | None" = None
    """The state in the prompt cache that this stream continues from, while the cache has it. Its
    bytes are counted in the cache; once the cache has dropped it, they are counted in each stream
    that still uses them.
    """
    shared: FlowState | None = None
    """The state inside the prompt that this stream shares with other streams of the voice; this
    reference keeps it alive.
    """
    prompt_cached: bool | None = None
    recomputing: bool = False
    ahead: EarlyBlock | None = None
    """The block after `position`, if it was started early."""

    @property
    def position(self) -> int:
        """Tokens decoded, those of the prompt included."""
        return self.flow.position

    @property
    def bytes(self) -> int:
        """Memory held, without what the prompt cache holds as well."""
        cached = self.cached() if self.cached is not None else None
        cached_bytes = cached.bytes if cached is not None else 0
        flow = self.flow if self.ahead is None else self.ahead.flow
        return max(flow.bytes - cached_bytes, 0) + self.stretch.bytes + self.vocoder.bytes

    def reach(self, end: int) -> int:
        """One grid block."""
        return self.grid.next_border(self.position, end)

    def early(self, tokens: int) -> int:
        """The last border inside the prompt whose look-ahead is known, given `tokens` generated
        tokens.
        """
        return self.grid.last_border(tokens)

    @property
    def inside(self) -> int:
        """The last border inside the prompt whose look-ahead is prompt too: up to there the state
        depends only on the voice.
        """
        return self.grid.last_border()

    def cancel(self) -> None:
        """Flow and vocoder skip this stream from the next Euler step or window on. May be called
        from any thread.
        """
        self.flow.cancelled = True
        self.vocoder.cancelled = True
        if (ahead := self.ahead) is not None:
            ahead.flow.cancelled = True


class BlocksAhead:
    """Computes the next flow block of a stream while the vocoder renders the current one.

    A step runs one block through the flow and then through the vocoder, which leaves a second core
    idle. As soon as the mel of a block is ready, the next block can start, provided that its tokens
    and their look-ahead are known: it depends only on them and on the past, and later tokens do not
    change which tokens it has. The block is computed on a fork of the stream, and the step that
    needs it takes the result. No sample changes.

    At most one early block is computed at a time, so that a stream that needs the flow waits for no
    more than one block.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="token2wav-ahead")
        self._latest: Future[TimedMel] | None = None

    def begin(self, stream: ContinuousState, tokens: NDArray[np.int64]) -> None:
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


def take_early(stream: ContinuousState, until: int) -> TimedMel | None:
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
