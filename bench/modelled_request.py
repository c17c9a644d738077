"""One request between engines that only take time: its sentences, its messages and its listener."""

from collections.abc import Callable, Sequence

import numpy as np

from bench.modelled_engines import ModelledLlm
from bench.player import Player
from bench.virtual_time import VirtualClock
from cosyserve.spec import SAMPLE_RATE
from services.token2wav.batcher import Batcher
from services.token2wav.lane import HopAudio, Lane
from services.token2wav.request import Sentence, Voice

FIRST_TOKENS = 16
WAY_SECONDS = 0.0015
"""Of a message from one process to the next."""
Engines = tuple[VirtualClock, ModelledLlm, Sequence[Batcher]]
"""The last are the replicas of the decoder."""


class ModelledRequest:
    """As the orchestrator runs it: the speech-token model is one sentence ahead of the decoder, which takes one after the other.

    tokens: of each sentence. way: seconds of the next message to the listener. over: called with the player and the moment of the request.
    """

    def __init__(
        self,
        engines: Engines,
        voice: Voice,
        tokens: list[int],
        way: Callable[[], float],
        over: Callable[[Player, float], None],
        *,
        tells: bool = True,
    ) -> None:
        """tells: whether a decoder hears how many streams there are on all replicas."""
        self._tells = tells
        self._clock, self._llm, self._replicas = engines
        self._batcher = self._replicas[0]
        self._voice, self._tokens, self._way, self._over = voice, tokens, way, over
        self._player, self._asked = Player(), self._clock.now()
        self._written: list[list[tuple[int, bool]]] = [[] for _ in tokens]
        self._complete = 0
        self._lane: Lane | None = None
        self._speaking = 0

    def begin(self) -> None:
        """Its text is read."""
        self._write(0)
        self._speak(0)

    def _write(self, sentence: int) -> None:
        self._llm.generate(
            self._tokens[sentence],
            FIRST_TOKENS,
            lambda new, last: self._clock.after(2 * WAY_SECONDS, lambda: self._fed(sentence, new, last)),
        )

    def _fed(self, sentence: int, new: int, last: bool) -> None:
        self._written[sentence].append((new, last))
        if sentence == self._speaking:
            self._feed(new, last)
        if last:
            self._complete = sentence + 1
            self._write_ahead()

    def _write_ahead(self) -> None:
        """The next sentence, when the one before is written and being spoken."""
        if self._complete == self._speaking + 1 < len(self._tokens):
            self._write(self._complete)

    def _feed(self, new: int, last: bool) -> None:
        assert self._lane is not None
        self._batcher.feed(self._lane, np.zeros(new, np.int64))
        if last:
            self._batcher.finish(self._lane)

    def _speak(self, sentence: int) -> None:
        left = self._player.left(self._clock.now() - self._asked)
        streams = [batcher.stats().streams for batcher in self._replicas]
        # The first of the least busy ones, as the orchestrator's `cosyserve.channel.ReplicaSet.pick`.
        self._batcher = self._replicas[streams.index(min(streams))]
        said = Sentence(self._voice, sentence_index=sentence, listener_seconds=left, caller_streams=sum(streams) + 1 if self._tells else 0)
        self._lane, self._speaking = self._batcher.open(said, self._heard), sentence
        for message in self._written[sentence]:
            self._feed(*message)
        if sentence:
            self._write_ahead()

    def _heard(self, arrival: HopAudio | Exception) -> None:
        assert isinstance(arrival, HopAudio), arrival
        assert self._lane is not None
        lane, batcher = self._lane, self._batcher
        self._clock.after(WAY_SECONDS / 3, lambda: batcher.taken(lane))
        self._clock.after(self._way(), lambda: self._listened(arrival))

    def _listened(self, arrival: HopAudio) -> None:
        if arrival.samples.size:
            self._player.hear(self._clock.now() - self._asked, arrival.samples.size / SAMPLE_RATE)
        if not arrival.last:
            return
        if self._speaking + 1 < len(self._tokens):
            self._clock.after(2 * WAY_SECONDS, lambda: self._speak(self._speaking + 1))
        else:
            self._over(self._player, self._asked)
