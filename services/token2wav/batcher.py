"""One thread owns the engine and takes the due work of all streams through it, one grid block per stream and step.

A new stream waits for no more than the step under way: streams that have not sounded yet go first, the others take turns, least
recently served first. Nothing polls: the thread sleeps until tokens, a reader or a new stream wake it.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import CosyserveError, InternalFault, Overloaded, Unavailable
from services.token2wav.chunking import schedule
from services.token2wav.decoder import Decoded, Decoder, StreamState, Stride
from services.token2wav.lane import Deliver, Lane
from services.token2wav.request import Profile, Sentence

log = logging.getLogger(__name__)
RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """max_streams: open at once. state_bytes: memory of all streams. One whose prompt does not fit is refused; once it is used up, only the
    oldest stream with work to do goes on, until others have ended."""

    max_streams: int
    state_bytes: int


@dataclass(frozen=True)
class Stats:
    """streams, state_bytes: now. The others since the start; longest_step_seconds is how long a cancelled stream may linger at most."""

    streams: int
    state_bytes: int
    peak_state_bytes: int
    steps: int
    longest_step_seconds: float


@dataclass(frozen=True)
class _Work:
    lane: Lane
    stride: Stride[StreamState]


class Batcher:
    """All methods but `close` return at once and may be called from the event loop."""

    def __init__(self, decoders: Mapping[Profile, Decoder[Any]], limits: Limits) -> None:
        self._decoders = decoders
        self._limits = limits
        self._changed = threading.Condition()
        self._lanes: list[Lane] = []
        self._in_step: set[Lane] = set()
        self._closing = False
        self._steps = 0
        self._longest = 0.0
        self._peak = 0
        self._thread = threading.Thread(target=self._run, name="token2wav-engine", daemon=True)
        self._thread.start()

    def open(self, sentence: Sentence, deliver: Deliver) -> Lane:
        """Admit a stream; raises Overloaded when all places are taken or its prompt does not fit into the state budget."""
        decoder = self._decoders[sentence.profile]
        needed = decoder.start_bytes(sentence.voice)
        with self._changed:
            self._check_room(needed)
            lane = Lane(sentence, decoder, schedule(sentence.profile, len(sentence.voice.tokens), sentence.hops), deliver, needed)
            self._lanes.append(lane)
            self._changed.notify()
        return lane

    def feed(self, lane: Lane, tokens: NDArray[np.int64]) -> None:
        """More generated tokens; without effect on a stream that is over."""
        with self._changed:
            lane.tokens = np.concatenate([lane.tokens, tokens])
            self._changed.notify()

    def finish(self, lane: Lane) -> None:
        """No more tokens will come."""
        with self._changed:
            lane.finished = True
            self._changed.notify()

    def taken(self, lane: Lane) -> None:
        """The reader has the last delivered hop; the next one may begin."""
        with self._changed:
            lane.waiting = False
            self._changed.notify()

    def cancel(self, lane: Lane) -> None:
        """Stop and forget a stream: at once, or, if it is being computed, before its next Euler step."""
        with self._changed:
            lane.cancelled = True
            if lane.state is not None:
                lane.state.cancel()
            if lane not in self._in_step:
                self._forget(lane)

    def stats(self) -> Stats:
        with self._changed:
            return Stats(len(self._lanes), self._bytes(), self._peak, self._steps, self._longest)

    def close(self) -> None:
        """End every stream with Unavailable and the thread after its step. Blocks for that long."""
        with self._changed:
            self._closing = True
            for lane in self._lanes:
                if lane.state is not None:
                    lane.state.cancel()
            self._changed.notify()
        self._thread.join()

    def _check_room(self, needed: int) -> None:
        if self._closing:
            raise Unavailable("the decoder is closing")
        if len(self._lanes) >= self._limits.max_streams:
            raise Overloaded(f"all {self._limits.max_streams} streams of the decoder are taken", retry_after=RETRY_AFTER_SECONDS)
        held = self._bytes()
        if held + needed > self._limits.state_bytes:
            raise Overloaded(
                f"the streams hold {held} of {self._limits.state_bytes} bytes of decoder state and this voice needs {needed}",
                retry_after=RETRY_AFTER_SECONDS,
            )

    def _run(self) -> None:
        error: CosyserveError = Unavailable("the decoder is closing")
        try:
            while self._turn():
                pass
        except BaseException:
            error = InternalFault("the decoder's thread has ended; the log has the details")
            log.exception("the decoder's thread failed")
            raise
        finally:
            with self._changed:
                self._closing = True
                for lane in list(self._lanes):
                    self._end(lane, error)

    def _turn(self) -> bool:
        """One step; False when closing. Its frame must not outlive it: it holds the states of streams that may be over."""
        works = self._next()
        if works is None:
            return False
        self._step(works)
        return True

    def _next(self) -> list[_Work] | None:
        """The next step, streams started as they come; waits for work, None when closing."""
        while True:
            with self._changed:
                for lane in self._in_step:
                    if lane.cancelled:
                        self._forget(lane)
                self._in_step.clear()
                while not self._closing and not (new := [lane for lane in self._lanes if lane.state is None]) and not (due := self._due()):
                    self._changed.wait()
                if self._closing:
                    return None
                self._in_step.update(new or [work.lane for work in due])
            if not new:
                return due
            for lane in new:
                self._start(lane)

    def _due(self) -> list[_Work]:
        works = [_Work(lane, stride) for lane in self._lanes if (stride := lane.next_stride()) is not None]
        if not works:
            return []
        if self._bytes() >= self._limits.state_bytes:
            return works[:1]
        works.sort(key=lambda work: (work.lane.has_sound, work.lane.served))
        decoder = works[0].lane.decoder
        return [work for work in works if work.lane.decoder is decoder][: decoder.widest_step]

    def _start(self, lane: Lane) -> None:
        try:
            state = lane.decoder.start(lane.sentence)
        except Exception as error:
            self._end(lane, _as_fault(error))
            return
        with self._changed:
            lane.state = state
            self._account(lane)

    def _step(self, works: list[_Work]) -> None:
        self._steps += 1
        began = time.perf_counter()
        try:
            results = works[0].lane.decoder.step([work.stride for work in works])
        except Exception as error:
            log.exception("a step of %d streams failed", len(works))
            for work in works:
                self._end(work.lane, _as_fault(error))
            return
        self._longest = max(self._longest, time.perf_counter() - began)
        for work, decoded in zip(works, results, strict=True):
            self._hand_out(work, decoded)

    def _hand_out(self, work: _Work, decoded: Decoded | CosyserveError | None) -> None:
        lane = work.lane
        if isinstance(decoded, CosyserveError):
            self._end(lane, decoded)
            return
        with self._changed:
            if lane.cancelled or decoded is None:
                return
            lane.served = self._steps
            self._account(lane)
            hop = lane.add(decoded, work.stride.until)
            if hop is not None and hop.last:
                self._forget(lane)
        if hop is not None:
            lane.deliver(hop)

    def _end(self, lane: Lane, error: CosyserveError) -> None:
        with self._changed:
            self._forget(lane)
        if not lane.cancelled:
            lane.deliver(error)

    def _forget(self, lane: Lane) -> None:
        lane.state = None
        lane.made.clear()
        if lane in self._lanes:
            self._lanes.remove(lane)

    def _account(self, lane: Lane) -> None:
        if lane.state is not None:
            lane.bytes = max(lane.bytes, lane.state.bytes)
        self._peak = max(self._peak, self._bytes())

    def _bytes(self) -> int:
        return sum(lane.bytes for lane in self._lanes)


def _as_fault(error: Exception) -> CosyserveError:
    if isinstance(error, CosyserveError):
        return error
    return InternalFault(f"decoding failed with {type(error).__name__}; the log of this service has the details")
