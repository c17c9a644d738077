"""One request between engines that only take time: its sentences, its messages and its listener."""

from collections.abc import Callable, Sequence

import numpy as np

from cosyserve.load.player import Player
from cosyserve.spec import SAMPLE_RATE, TOKENS_PER_SECOND
from services.orchestrator.decode_ahead import LISTENER_SECONDS
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.stream_slot import StreamSlot
from tools.capacity.timing.clock import VirtualClock
from tools.capacity.timing.engines import ModelledLlm

FIRST_TOKENS = 16
WAY_SECONDS = 0.0015
"""Of a message from one process to the next."""
Engines = tuple[VirtualClock, ModelledLlm, Sequence[Batcher]]
"""The last are the replicas of the decoder."""


class ModelledRequest:
    """As the orchestrator runs it: the speech-token model is one sentence ahead of the decoder,
    which plays one after the other and, where the listener has little left, begins the next one
    early.

    tokens: of each sentence. way: seconds of the next message to the listener. over: called with
    the player and the moment of the request. ahead: whether sentences are begun early. shares_load:
    whether a decoder hears how many streams there are on all replicas.
    """

    def __init__(
        self,
        engines: Engines,
        voice: Voice,
        tokens: list[int],
        way: Callable[[], float],
        over: Callable[[Player, float], None],
        *,
        ahead: bool = True,
        shares_load: bool = True,
    ) -> None:
        self._clock, self._llm, self._replicas = engines
        self._voice, self._tokens, self._way, self._over = voice, tokens, way, over
        self._player, self._asked = Player(), self._clock.now()
        self._ahead, self._shares_load = ahead, shares_load
        self._written: list[list[tuple[int, bool]]] = [[] for _ in tokens]
        self._lanes: dict[int, StreamSlot] = {}
        self._batchers: dict[int, Batcher] = {}
        self._early: list[HopAudio] = []
        """Sound of a sentence whose turn has not come."""
        self._complete = self._speaking = 0
        self._sent = 0.0
        """Seconds of the sentence that is being played."""

    def begin(self) -> None:
        """Its text is read."""
        self._write(0)
        self._open(0)

    def _write(self, sentence: int) -> None:
        self._llm.generate(
            self._tokens[sentence],
            FIRST_TOKENS,
            lambda new, last: self._later(sentence, new, last),
        )

    def _later(self, sentence: int, new: int, last: bool) -> None:
        self._clock.after(2 * WAY_SECONDS, lambda: self._fed(sentence, new, last))

    def _fed(self, sentence: int, new: int, last: bool) -> None:
        self._written[sentence].append((new, last))
        if sentence in self._lanes:
            self._feed(sentence, new, last)
        if last:
            self._complete = sentence + 1
            self._write_ahead()
            if sentence == self._speaking:
                self._wait_for_the_end_of(sentence)

    def _write_ahead(self) -> None:
        """The next sentence, when the one before is written and has been begun."""
        if self._complete == len(self._lanes) < len(self._tokens):
            self._write(self._complete)

    def _feed(self, sentence: int, new: int, last: bool) -> None:
        lane, batcher = self._lanes[sentence], self._batchers[sentence]
        batcher.feed(lane, np.zeros(new, np.int64))
        if last:
            batcher.finish(lane)

    def _open(self, sentence: int) -> None:
        streams = [batcher.stats().streams for batcher in self._replicas]
        # The first of the least busy ones, as the orchestrator's
        # `cosyserve.rpc.replicas.ReplicaSet.pick`.
        batcher = self._replicas[streams.index(min(streams))]
        said = Sentence(
            self._voice,
            sentence_index=sentence,
            utterance=id(self),
            listener_seconds=self._until_played(sentence),
            caller_streams=sum(streams) + 1 if self._shares_load else 0,
        )
        self._batchers[sentence] = batcher
        self._lanes[sentence] = batcher.open(said, lambda arrival: self._heard(sentence, arrival))
        for message in self._written[sentence]:
            self._feed(sentence, *message)
        if sentence:
            self._write_ahead()

    def _until_played(self, sentence: int) -> float:
        """Seconds until the listener has played everything in front of `sentence`."""
        left = self._player.left(self._clock.now() - self._asked)
        unsent = self._tokens[self._speaking] / TOKENS_PER_SECOND - self._sent if sentence > self._speaking else 0.0
        return left + max(unsent, 0.0)

    def _wait_for_the_end_of(self, sentence: int) -> None:
        following = sentence + 1
        if not self._ahead or following >= len(self._tokens) or following in self._lanes:
            return
        seconds = self._until_played(following) - LISTENER_SECONDS

        def begin() -> None:
            if self._speaking == sentence and following not in self._lanes:
                self._open(following)

        self._clock.after(max(seconds, 0.0), begin)

    def _heard(self, sentence: int, arrival: HopAudio | Exception) -> None:
        assert isinstance(arrival, HopAudio), arrival
        lane, batcher = self._lanes[sentence], self._batchers[sentence]
        self._clock.after(WAY_SECONDS / 3, lambda: batcher.taken(lane))
        self._clock.after(self._way(), lambda: self._arrived(sentence, arrival))

    def _arrived(self, sentence: int, arrival: HopAudio) -> None:
        if sentence > self._speaking:
            self._early.append(arrival)
        else:
            self._listened(arrival)

    def _listened(self, arrival: HopAudio) -> None:
        if arrival.samples.size:
            self._player.hear(self._clock.now() - self._asked, arrival.samples.size / SAMPLE_RATE)
            self._sent += arrival.samples.size / SAMPLE_RATE
        if not arrival.last:
            return
        if self._speaking + 1 < len(self._tokens):
            self._clock.after(2 * WAY_SECONDS, self._speak_next)
        else:
            self._over(self._player, self._asked)

    def _speak_next(self) -> None:
        self._speaking, self._sent = self._speaking + 1, 0.0
        if self._speaking not in self._lanes:
            self._open(self._speaking)
        if self._complete > self._speaking:
            self._wait_for_the_end_of(self._speaking)
        early, self._early = self._early, []
        for arrival in early:
            self._listened(arrival)
