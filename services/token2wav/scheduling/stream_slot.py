"""One stream in the scheduler: which tokens are known, which hop is being decoded, which finished
hops wait for the reader, and when its player runs dry.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.engines.engine_load import EngineLoad
from cosyserve.metrics import names
from cosyserve.metrics.hang_up import HangUp, of_call
from cosyserve.metrics.instruments import histogram
from cosyserve.spec import SAMPLE_RATE, TOKENS_PER_SECOND
from services.token2wav.decoders.interface import Decoded, Decoder, StepInput, StreamState
from services.token2wav.inputs.chunking import Hop, Schedule
from services.token2wav.inputs.request import Sentence
from services.token2wav.scheduling.hop_audio import Deliver, HopAudio
from services.token2wav.scheduling.hop_timings import HopTimings, hold_timings
from services.token2wav.scheduling.playing_time import PlayingTime

_SLACK = histogram(names.PLAYBACK_SLACK)
PROMPT_CACHED = "prompt_cached"
"""Attribute of a sentence's first span: whether the state of its voice's prompt was cached when the
sentence started.
"""
LEAST_SECONDS = 0.25
"""Minimum time that an engine needs between the moment when a hop can begin and the moment when its
player runs dry. With less time, the tokens or the reader were late, not the engine.
"""
FIRST_SOUND_SECONDS = 0.5
"""Time that a stream without audio may wait before it counts as late as a player that has run
dry.
"""
CROWDED_SECONDS = 0.25
"""A first sound one of whose hops takes longer, where streams share steps, is late: by then the
crowd is larger than the engine can serve in time, though no player has run dry.
"""


@dataclass(eq=False)
class StreamSlot:
    """Written by the event loop and the batcher's thread under the batcher's lock; only the
    batcher's thread accesses `state`.

    All moments are in seconds of the batcher's clock.
    """

    sentence: Sentence
    decoder: Decoder[Any]
    schedule: Schedule
    deliver: Deliver
    reserved: int
    """Bytes of memory reserved at admission, for the prompt and the first tokens after it."""
    bytes: int
    """Bytes counted for this stream: at first what its prompt needs, later what it holds."""
    load: EngineLoad = field(default_factory=EngineLoad)
    """Receives whether each hop was delivered on time."""
    state: StreamState | None = None
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    finished: bool = False
    hop: Hop | None = None
    """The hop that is being decoded, or the last one that was."""
    decoding: bool = False
    """Whether `hop` is being decoded."""
    unread_hops: int = 0
    """Hops delivered that the reader has not taken. The next hop begins while one is unread, but
    not while two are.
    """
    cancelled: bool = False
    due_at: float | None = None
    """When the hop that is being decoded could begin; None: not known."""
    opened_at: float = 0.0
    waiting_since: float | None = None
    """When the stream had work for the first time."""
    tokens_at: float | None = None
    """When tokens last arrived."""
    is_playing: bool = False
    """Whether the listener's player is playing: audio that the caller did not have before was
    delivered, or an earlier sentence is still being played.
    """
    playing_time: PlayingTime = field(default_factory=PlayingTime)
    """Of the audio delivered, and whether the listener has heard any."""
    plays_until: float = 0.0
    """When the player runs dry with the audio delivered so far, for a player that begins with the
    first audible sample and may wait for what follows a pause, see `playing_time`.
    """
    held: HopAudio | None = None
    """Finished audio that is not delivered yet, see `scheduling.first_chunk_delay`."""
    held_since: float = 0.0
    held_hops: int = 0
    held_seconds: float = 0.0
    """Playing time of what is held, see `playing_time`."""
    follows: "StreamSlot | None" = None
    """The stream of an earlier sentence of the same request while it is not over; the player plays
    that one first.
    """
    followed_by: "StreamSlot | None" = None
    """The stream of the next sentence, if there is one."""
    over: bool = False
    """The stream has computed all its audio, has failed or was cancelled."""
    _begins_at: float = 0.0
    """Latest estimate of when the player will have played the preceding sentence."""
    on_next_hop: Callable[[float], None] | None = None
    """Called once when the next hop is finished, to measure the error of a forecast."""
    _longest_hop: float = 0.0
    """Seconds from where a hop could begin to where it was finished, the longest until something
    was heard: what the listener waits for because of other streams, and not for tokens or for a
    first chunk that is held.
    """
    _samples_before_held: int = 0
    """Samples computed before those that are held."""
    silent_seconds: float = 0.0
    """Share of the time of steps without audio for any stream; it is added to the cost of speech
    once this stream gives audio.
    """
    timings: HopTimings = field(default_factory=HopTimings)
    """When the hops were computed, and what they waited for."""
    hang_up: HangUp = field(default_factory=lambda: of_call().hold())
    """Of the call of this stream; it holds memory until it is forgotten."""
    last_step: int = 0
    """Number of the last step in which this stream took part."""
    decoded_parts: list[Decoded] = field(default_factory=list)

    def opens(self, now: float, follows: "StreamSlot | None" = None, followed_by: "StreamSlot | None" = None) -> None:
        """The stream is admitted. Its listener may have heard part of the request, and may still be
        playing it.

        follows, followed_by: streams of the preceding and the next sentence of the request, if they
        are not over.
        """
        self.opened_at = now
        self.playing_time = PlayingTime(self.sentence.is_continued, self.sentence.withholds_silence)
        self.follows, self.followed_by = follows, followed_by
        if followed_by is not None:
            followed_by.update_deadline(now)
            followed_by.follows = self
        if follows is not None:
            follows.followed_by = self
            self.is_playing, self.plays_until = follows.is_playing, follows.expected_end(now)
            self._begins_at = self.plays_until
        else:
            self.is_playing = self.sentence.listener_seconds > 0
            self.plays_until = now + self.sentence.listener_seconds if self.is_playing else 0.0
            self._begins_at = self.plays_until or now + FIRST_SOUND_SECONDS

    @property
    def is_heard(self) -> bool:
        """Whether something audible was delivered, or the listener heard something before this
        stream.
        """
        return self.playing_time.is_heard

    @property
    def is_decoded(self) -> bool:
        """Whether its last hop is finished; held audio may still have to be delivered."""
        return self.hop is not None and self.hop.final and not self.decoding

    def update_deadline(self, now: float) -> None:
        """Shift the moment at which the player runs dry by what has become known about the
        preceding sentence.
        """
        if self.follows is None:
            return
        begins_at = self.follows.plays_until if self.follows.over else self.follows.expected_end(now)
        self.plays_until = max(self.plays_until, self._begins_at) + begins_at - self._begins_at
        self._begins_at, self.is_playing = begins_at, self.is_playing or self.follows.is_playing
        if self.follows.over:
            self.follows = None

    def expected_end(self, now: float) -> float:
        """When the player will have played the whole sentence, as far as its tokens are known."""
        begins_at = (
            self.plays_until
            if self.is_playing or self.follows is not None
            else (self.waiting_since or now) + FIRST_SOUND_SECONDS
        )
        seconds = len(self.tokens) / TOKENS_PER_SECOND / self.sentence.speed
        counted = self._samples_before_held / SAMPLE_RATE - self.playing_time.withheld_seconds
        return max(begins_at, now) + max(seconds - counted, 0.0)

    def next_input(self) -> StepInput[StreamState] | None:
        """The next work; None if the stream has not started, has to wait for tokens or the reader,
        or is complete.
        """
        if self.state is None or self.is_decoded:
            return None
        if not self.decoding and self.unread_hops < 2:
            due = self.schedule.next(self.hop, len(self.tokens), self.finished)
            if due is not None:
                self.hop, self.decoding, self.due_at = due, True, None
        if self.decoding and self.hop is not None:
            end = self.schedule.prompt_tokens + self.hop.end
            until = self.state.reach(end)
            return StepInput(self.state, self.tokens, until, self.hop.final and until == end)
        early = self.state.early(len(self.tokens))
        return (
            StepInput(self.state, self.tokens, self.state.reach(early), final=False)
            if early > self.state.position
            else None
        )

    def append(self, tokens: NDArray[np.int64]) -> bool:
        """Add generated tokens; notes the time if they complete the next hop, and returns whether
        they do.
        """
        return self._change_tokens(np.concatenate([self.tokens, tokens]), finished=self.finished)

    def finish(self) -> None:
        """No tokens follow, which may complete the last hop."""
        self._change_tokens(self.tokens, finished=True)

    def _change_tokens(self, tokens: NDArray[np.int64], *, finished: bool) -> bool:
        missed = self.missing_tokens() > 0
        self.tokens, self.finished = tokens, finished
        completed = missed and self.missing_tokens() <= 0
        if completed:
            self.timings.tokens_complete()
        return completed

    def missing_tokens(self) -> int:
        """Tokens that must still arrive for the hop after the last one decoded or begun; 0 if it
        can be computed.
        """
        if self.decoding or self.schedule.next(self.hop, len(self.tokens), self.finished) is not None:
            return 0
        return self.schedule.needed(self.hop) - len(self.tokens)

    def add(self, decoded: Decoded, until: int, now: float) -> bool:
        """Store the result of a step. Returns whether it finishes the hop, which is then held,
        together with audio that is held already.

        until: the position that the step reached, in tokens from the first prompt token.
        """
        self.decoded_parts.append(decoded)
        if not self.decoding or self.hop is None or until < self.schedule.prompt_tokens + self.hop.end:
            return False
        parts, self.decoded_parts, self.decoding = self.decoded_parts, [], False
        samples = np.concatenate([part.samples for part in parts])
        timings = self.timings.of(self.hop.index, parts)
        if self.hop.index == 0 and self.state is not None and self.state.prompt_cached is not None:
            timings[0].attributes[PROMPT_CACHED] = self.state.prompt_cached
        if not self.is_heard and self.due_at is not None:
            self._longest_hop = max(self._longest_hop, now - self.due_at)
        finished = HopAudio(self.hop, samples, timings)
        if self.held is None:
            self.held, self.held_since = finished, now
        else:
            self.held = self.held.joined(finished)
        if (callback := self.on_next_hop) is not None:
            self.on_next_hop = None
            callback(now)
        self.held_hops += 1
        self.held_seconds = self.playing_time.seconds(self.held.samples, last=self.held.last)
        return True

    def hand_out(self, now: float) -> HopAudio:
        """Return what is held, for the reader."""
        self.update_deadline(now)
        held = self.held
        assert held is not None  # noqa: S101
        self.held, self.held_hops, self.held_seconds, self.unread_hops = None, 0, 0.0, self.unread_hops + 1
        held.timings.extend(hold_timings(held.hop.index, now - self.held_since))
        self._samples_before_held += held.samples.size
        new = min(held.samples.size, max(self._samples_before_held - self.sentence.start_sample, 0))
        known, samples = np.split(held.samples, [held.samples.size - new])
        self.playing_time.skip(known)
        if samples.size:
            self._plays(samples, now, last=held.last)
        elif held.last:
            self.plays_until += self.playing_time.withheld_seconds
        return held

    def _plays(self, samples: NDArray[np.float32], now: float, *, last: bool) -> None:
        was_heard = self.is_heard
        seconds = self.playing_time.deliver(samples, last=last)
        begins = self.is_heard and not was_heard
        if begins and not self.is_playing and self.decoder.widest_step > 1:
            # Where streams share steps, a crowd shows in first sounds before a player runs dry.
            self.load.handed_out(late=self._longest_hop > CROWDED_SECONDS)
        if self.is_playing:
            _SLACK.record(max(self.plays_until - now, 0.0))
        if self.is_playing and not begins:
            # A hop that could only begin shortly before the player ran dry, or later, was late
            # because of the caller's tokens or reading, not because of the engine.
            in_time = self.due_at is None or self.due_at > self.plays_until - LEAST_SECONDS or now <= self.plays_until
            self.load.handed_out(late=not in_time)
        # A player that has run dry continues from now; one that skips leading silence begins now.
        self.plays_until = (now if begins else max(self.plays_until, now)) + seconds
        self.is_playing = True
