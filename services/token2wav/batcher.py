"""One thread owns the engine and takes the due work of all streams through it, one grid block per stream and step.

A new stream waits for no more than the step under way: streams that have not sounded yet go first, by themselves and those whose player
is about to run dry; then the others, whose player runs dry soonest first. A sentence of the offline profile is one long step and goes
when no stream has work to do. Nothing polls: the thread sleeps until tokens, a reader or a new stream wake it.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import CosyserveError, InternalFault, Unavailable
from services.token2wav.budget import Budget, Limits, held
from services.token2wav.chunking import schedule
from services.token2wav.decoder import Decoded, Decoder, StreamState, Stride
from services.token2wav.engine_health import EngineHealth, OnFault
from services.token2wav.lane import Deliver, Lane
from services.token2wav.request import Profile, Sentence

log = logging.getLogger(__name__)
URGENT_SECONDS = 0.25
"""A stream that has less than this left to play shares the steps of those that have not sounded yet."""


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
    """All methods but `close` return at once and may be called from the event loop.

    on_fault: told when the engine is broken: its thread has died, or three steps in a row failed with what is no CosyserveError.
    """

    def __init__(self, decoders: Mapping[Profile, Decoder[Any]], limits: Limits, on_fault: OnFault | None = None) -> None:
        self._decoders = decoders
        self._budget = Budget(limits)
        self._health = EngineHealth(on_fault)
        self._changed = threading.Condition()
        self._lanes: list[Lane] = []
        self._in_step: set[Lane] = set()
        self._closing = False
        self._steps = 0
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run, name="token2wav-engine", daemon=True)
        self._thread.start()

    def open(self, sentence: Sentence, deliver: Deliver) -> Lane:
        """Admit a stream; `deliver` gets its finished hops and, in the end, what went wrong.

        Raises Overloaded when all places are taken or its prompt and reserve do not fit into the state budget, Unavailable when closing.
        """
        decoder = self._decoders[sentence.profile]
        prompt = decoder.start_bytes(sentence.voice)
        needed = self._budget.needed(prompt, decoder.token_bytes)
        cuts = schedule(sentence.profile, len(sentence.voice.tokens), sentence.hops)
        with self._changed:
            if self._closing:
                raise Unavailable("the decoder is closing")
            self._budget.check_room(self._lanes, needed)
            lane = Lane(sentence, decoder, cuts, deliver, reserved=needed, bytes=prompt)
            self._lanes.append(lane)
            self._changed.notify()
        return lane

    def feed(self, lane: Lane, tokens: NDArray[np.int64]) -> None:
        """More generated tokens, int64 [n] at 25 Hz, already checked; without effect on a stream that is over."""
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
        """Counts and bytes as they are now, seconds since the start."""
        with self._changed:
            return Stats(len(self._lanes), held(self._lanes), self._budget.peak, self._steps, self._longest)

    def close(self) -> None:
        """End every stream with Unavailable and the thread after its step. Blocks for that long."""
        with self._changed:
            self._closing = True
            for lane in self._lanes:
                if lane.state is not None:
                    lane.state.cancel()
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        error: CosyserveError = Unavailable("the decoder is closing")
        try:
            while self._turn():
                pass
        except BaseException as cause:
            error = InternalFault("the decoder's thread has ended; the log has the details")
            log.exception("the decoder's thread failed")
            self._health.broke(f"the decoder's thread ended with {type(cause).__name__}: {cause}")
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
        if self._budget.used_up(self._lanes) and not works[0].lane.decoder.goes_on_without_room:
            return works[:1]
        works.sort(key=lambda work: (work.lane.sentence.profile is Profile.OFFLINE, work.lane.plays_until, work.lane.served))
        decoder = works[0].lane.decoder
        # A small step is a short one: a first sound waits for no sound that nobody misses yet.
        last = time.monotonic() + URGENT_SECONDS if not works[0].lane.has_sound else float("inf")
        return [work for work in works if work.lane.decoder is decoder and work.lane.plays_until < last][: decoder.widest_step]

    def _start(self, lane: Lane) -> None:
        try:
            state = lane.decoder.start(lane.sentence)
        except Exception as error:
            self._end(lane, self._health.failed(error, "the start of a stream"))
            return
        with self._changed:
            lane.state = state
            self._budget.account(self._lanes)

    def _step(self, works: list[_Work]) -> None:
        self._steps += 1
        began = time.perf_counter()
        try:
            results = works[0].lane.decoder.step([work.stride for work in works])
        except Exception as error:
            told = self._health.failed(error, f"a step of {len(works)} streams")
            for work in works:
                self._end(work.lane, told)
            return
        self._health.worked()
        self._longest = max(self._longest, time.perf_counter() - began)
        with self._changed:
            self._budget.account(self._lanes)
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
