"""One stream as the batcher sees it: which tokens are known, which hop is being spoken, what waits
for the reader.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosyserve.engines.engine_load import EngineLoad
from cosyserve.spec import SAMPLE_RATE, TOKENS_PER_SECOND
from cosyserve.timing import Timing
from services.token2wav.decoders.interface import Decoded, Decoder, StreamState, Stride
from services.token2wav.guards.audible import audible_from
from services.token2wav.inputs.chunking import Hop, Schedule
from services.token2wav.inputs.request import Sentence
from services.token2wav.scheduling.deadlines import FIRST_SOUND_SECONDS

PROMPT_CACHED = "prompt_cached"
"""Attribute of a sentence's first span: whether the state behind its voice's prompt was kept when
it started.
"""

LEAST_SECONDS = 0.25
"""What an engine needs at least between the moment in which a hop can be begun and that in which
its player runs dry; without it the tokens or the reader were late."""
_SEEN_SECONDS = 0.001
"""Waits that are longer have a span of their own."""


@dataclass(frozen=True)
class HopAudio:
    """A finished hop. samples: float32 [n], new ones only, possibly none."""

    hop: Hop
    samples: NDArray[np.float32]
    timings: list[Timing]

    @property
    def last(self) -> bool:
        """Whether the sentence is over."""
        return self.hop.final

    def joined(self, following: "HopAudio") -> "HopAudio":
        """Both as one longer hop."""
        hop = Hop(self.hop.index, self.hop.start, following.hop.end, following.hop.final)
        return HopAudio(hop, np.concatenate([self.samples, following.samples]), self.timings + following.timings)


Deliver = Callable[["HopAudio | Exception"], None]
"""Takes each finished hop, or the error that ends the stream. Called from the batcher's thread;
must not block.
"""


@dataclass(eq=False)
class StreamSlot:
    """Written by the event loop and the batcher's thread under the batcher's lock; `state` is
    touched by the batcher's thread only.
    """

    sentence: Sentence
    decoder: Decoder[Any]
    schedule: Schedule
    deliver: Deliver
    reserved: int
    """Bytes of memory it was promised when it was admitted: for its prompt and the first tokens
    behind it.
    """
    bytes: int
    """Memory counted for this stream: what its prompt needs at first, what it holds later."""
    load: EngineLoad = field(default_factory=EngineLoad)
    """Told whether its sound was in time."""
    state: StreamState | None = None
    tokens: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    finished: bool = False
    hop: Hop | None = None
    """The hop that is being spoken, or the last one that was."""
    speaking: bool = False
    untaken: int = 0
    """Hops handed out that the reader has not taken. One is begun while one waits, none while two
    do.
    """
    cancelled: bool = False
    due_at: float | None = None
    """When the hop that is being spoken could be begun; None: it is not known."""
    asked: float | None = None
    """When it had work for the first time, in seconds of the batcher's clock, as all moments
    here.
    """
    fed: float | None = None
    """When tokens came last."""
    has_sound: bool = False
    """Its listener plays: sound has been handed out that the caller does not know yet, or an
    earlier sentence is still being played.
    """
    is_heard: bool = False
    """Something audible has been handed out, or the listener has heard something before this
    stream.
    """
    plays_until: float = 0.0
    """When the player that runs dry first does so, with what has been handed out: one that begins
    with the first audible sample.
    """
    held: HopAudio | None = None
    """Finished sound that is not handed out yet, see
    `services.token2wav.scheduling.first_chunk_delay`.
    """
    held_since: float = 0.0
    held_hops: int = 0
    held_seconds: float = 0.0
    """How long what is held can be played: while nothing has been heard, from its first audible
    sample on, or all of it if it has none.
    """
    follows: "StreamSlot | None" = None
    """The stream of an earlier sentence of the same request while it is not over: the player plays
    that one first.
    """
    followed_by: "StreamSlot | None" = None
    """The stream that follows it, if one was begun."""
    over: bool = False
    """It has made all its sound, has failed or was cancelled."""
    _begins_at: float = 0.0
    """When the player will have played the sentence in front of it, as last known."""
    awaited: Callable[[float], None] | None = None
    """Told once when the next hop is finished: somebody has foretold it."""
    _spoken: int = 0
    """Samples made before those that are held."""
    silent_seconds: float = 0.0
    """Its share of steps that made no sound for any stream; they are part of what speech costs as
    soon as it has made some.
    """
    served: int = 0
    """Number of the last step that this stream took part in."""
    made: list[Decoded] = field(default_factory=list)

    def opens(self, now: float, follows: "StreamSlot | None" = None, followed_by: "StreamSlot | None" = None) -> None:
        """It is admitted. Its listener may have heard something of the request, and still play it.
        follows, followed_by: streams of the sentences of the request before and behind it that are
        not over."""
        self.is_heard, self.follows, self.followed_by = self.sentence.is_continued, follows, followed_by
        if followed_by is not None:
            followed_by.keep_up(now)
            followed_by.follows = self
        if follows is not None:
            follows.followed_by = self
            self.has_sound, self.plays_until = follows.has_sound, follows.expected_end(now)
            self._begins_at = self.plays_until
        else:
            self.has_sound = self.sentence.listener_seconds > 0
            self.plays_until = now + self.sentence.listener_seconds if self.has_sound else 0.0
            self._begins_at = self.plays_until or now + FIRST_SOUND_SECONDS

    @property
    def is_spoken(self) -> bool:
        """Whether its last hop is finished; what is held may still have to be handed out."""
        return self.hop is not None and self.hop.final and not self.speaking

    def keep_up(self, now: float) -> None:
        """Shift the moment at which its player runs dry by what has become known of the sentence in
        front of it.
        """
        if self.follows is None:
            return
        begins_at = self.follows.plays_until if self.follows.over else self.follows.expected_end(now)
        self.plays_until = max(self.plays_until, self._begins_at) + begins_at - self._begins_at
        self._begins_at, self.has_sound = begins_at, self.has_sound or self.follows.has_sound
        if self.follows.over:
            self.follows = None

    def expected_end(self, now: float) -> float:
        """When the player will have played the whole sentence, as far as its tokens are known."""
        begun = (
            self.plays_until
            if self.has_sound or self.follows is not None
            else (self.asked or now) + FIRST_SOUND_SECONDS
        )
        seconds = len(self.tokens) / TOKENS_PER_SECOND / self.sentence.speed
        return max(begun, now) + max(seconds - self._spoken / SAMPLE_RATE, 0.0)

    def next_input(self) -> Stride[StreamState] | None:
        """The next piece of work; None when the stream is not started yet, has to wait for tokens
        or the reader, or has made all.
        """
        if self.state is None or self.is_spoken:
            return None
        if not self.speaking and self.untaken < 2:
            due = self.schedule.next(self.hop, len(self.tokens), self.finished)
            if due is not None:
                self.hop, self.speaking, self.due_at = due, True, None
        if self.speaking and self.hop is not None:
            end = self.schedule.prompt_tokens + self.hop.end
            until = self.state.reach(end)
            return Stride(self.state, self.tokens, until, self.hop.final and until == end)
        early = self.state.early(len(self.tokens))
        return (
            Stride(self.state, self.tokens, self.state.reach(early), final=False)
            if early > self.state.position
            else None
        )

    def missing_tokens(self) -> int:
        """Tokens that have yet to come for the hop after the last one that was spoken or begun; 0
        when it can be computed.
        """
        if self.speaking or self.schedule.next(self.hop, len(self.tokens), self.finished) is not None:
            return 0
        return self.schedule.needed(self.hop) - len(self.tokens)

    def add(self, decoded: Decoded, until: int, now: float) -> bool:
        """Keep what a step made; whether the hop is finished with it. Then it is held, together
        with what is held already.

        until: the position that the step reached, in tokens from the first prompt token.
        """
        self.made.append(decoded)
        if not self.speaking or self.hop is None or until < self.schedule.prompt_tokens + self.hop.end:
            return False
        made, self.made, self.speaking = self.made, [], False
        samples = np.concatenate([part.samples for part in made])
        timings = [timing for part in made for timing in _timings(self.hop.index, part)]
        if self.hop.index == 0 and self.state is not None and self.state.prompt_cached is not None:
            timings[0].attributes[PROMPT_CACHED] = self.state.prompt_cached
        finished = HopAudio(self.hop, samples, timings)
        if self.held is None:
            self.held, self.held_since = finished, now
        else:
            self.held = self.held.joined(finished)
        if (told := self.awaited) is not None:
            self.awaited = None
            told(now)
        self.held_hops += 1
        self.held_seconds = self._playing_seconds(self.held.samples)
        return True

    def _playing_seconds(self, samples: NDArray[np.float32]) -> float:
        begin = None if self.is_heard else audible_from(samples)
        return (samples.size - (begin or 0)) / SAMPLE_RATE

    def hand_out(self, now: float) -> HopAudio:
        """What is held, for the reader."""
        self.keep_up(now)
        held = self.held
        assert held is not None  # noqa: S101
        self.held, self.held_hops, self.held_seconds, self.untaken = None, 0, 0.0, self.untaken + 1
        if (waited := now - self.held_since) > _SEEN_SECONDS:
            end = time.time_ns()
            held.timings.append(Timing("token2wav.hold", end - int(1e9 * waited), end, {"hop": held.hop.index}))
        self._spoken += held.samples.size
        new = min(held.samples.size, self._spoken - self.sentence.start_sample)
        if new > 0:
            self._plays(held.samples[-new:], now)
        return held

    def _plays(self, samples: NDArray[np.float32], now: float) -> None:
        begins = not self.is_heard and audible_from(samples) is not None
        if self.has_sound and not begins:
            # What began later than the player had run dry was awaited from the caller.
            in_time = self.due_at is None or self.due_at > self.plays_until - LEAST_SECONDS or now <= self.plays_until
            self.load.handed_out(late=not in_time)
        # A player that has run dry waits and then goes on from now; one that leaves out leading
        # silence begins now.
        self.plays_until = (now if begins else max(self.plays_until, now)) + self._playing_seconds(samples)
        self.has_sound, self.is_heard = True, self.is_heard or begins


def neighbours(sentence: Sentence, slots: Sequence[StreamSlot]) -> tuple[StreamSlot | None, StreamSlot | None]:
    """Of the streams of the same request, those nearest in front of `sentence` and behind it; None
    where there is none.
    """
    same = (
        [slot for slot in slots if slot.sentence.utterance == sentence.utterance and not slot.cancelled]
        if sentence.utterance
        else []
    )
    ahead = [slot for slot in same if slot.sentence.sentence_index < sentence.sentence_index]
    behind = [slot for slot in same if slot.sentence.sentence_index > sentence.sentence_index]
    return (
        max(ahead, key=lambda slot: slot.sentence.sentence_index, default=None),
        min(behind, key=lambda slot: slot.sentence.sentence_index, default=None),
    )


def _timings(hop: int, decoded: Decoded) -> list[Timing]:
    flow = Timing("token2wav.flow", *decoded.flow_ns, {"hop": hop, "tokens": decoded.tokens, "frames": decoded.frames})
    if decoded.vocoder_ns is None:
        return [flow]
    attributes: dict[str, int | float | str] = {
        "hop": hop,
        "frames": decoded.frames,
        "samples": int(decoded.samples.size),
    }
    return [flow, Timing("token2wav.vocoder", *decoded.vocoder_ns, attributes)]
