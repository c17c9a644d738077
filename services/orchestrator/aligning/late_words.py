"""The words of one request whose times come from its sound: a sentence is aligned when its sound is
complete, in a task beside the pipeline, which waits for none of it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from cosyserve import spec
from cosyserve.rpc.deadlines import remaining
from cosyserve.tasks import retrieve_error
from services.orchestrator.aligning.untimed import Reason, Untimed, UntimedSentences
from services.orchestrator.aligning.workers import AlignerWorkers
from services.orchestrator.speech.utterance import Sentence
from services.orchestrator.speech.word_alignment import WordTime

log = logging.getLogger(__name__)
MOST_SECONDS = 60.0
"""Sound of one request that may wait for its alignment beside the sentence that is aligned; the
words of what comes on top have no times.
"""
_BEFORE_DEADLINE_SECONDS = 0.2
ALIGNED_LANGUAGE = "en"
"""The only language of the acoustic model, and the only one whose times have been measured."""
_FREQUENT = {
    "de": "und der das ist nicht ein eine einen ich wir ihr sie mit für auf dem zu von auch sich mein haben wird sind",
    "fr": "le les des est une dans je vous nous et pas que qui avec pour il elle ce cette sur mais où très du au c'est",
    "es": "el los las una que por con para está muy es en mi su más pero como yo tú hoy del qué",
    "it": "il che di una sono gli è non per questo questa con mia mio della nel ho ma anche molto ci",
    "pt": "não uma você com os as em meu minha para é do da mais muito que está",
    "nl": "het een niet van ik je zijn dat wij met voor op maar ook naar",
}  # fmt: skip
_ALSO_ENGLISH = frozenset(("do", "as", "me", "con", "per", "sur", "also", "mi", "ma", "ho", "il", "em", "op"))
_FOREIGN = frozenset(word for words in _FREQUENT.values() for word in words.split()) - _ALSO_ENGLISH
_LEAST, _SHARE = 2, 0.2


class _Spoken(NamedTuple):
    sentence: Sentence
    pcm: bytes
    begin: float
    """Seconds of the utterance before it."""


class LateWords:
    """Aligns the sentences of one request in order."""

    def __init__(self) -> None:
        self.words: list[WordTime] = []
        """Those whose times are known and that have not been taken yet."""
        self.untimed = UntimedSentences()
        self.waited_seconds = 0.0
        """For which the end of the request has waited."""
        self._aligners = AlignerWorkers()
        self._waiting: deque[_Spoken] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, aligners: AlignerWorkers, sentence: Sentence, pcm: bytes, first_sample: int) -> None:
        """A sentence was spoken. pcm: all its sound, mono s16le at 24 kHz; first_sample: its
        position in the utterance.
        """
        if not sentence.words:
            return
        if reason := self._refusal(aligners, sentence, pcm):
            self.untimed.add(reason, sentence.index)
            return
        self._aligners = aligners
        self._waiting.append(_Spoken(sentence, pcm, first_sample / spec.SAMPLE_RATE))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._align())
            self._task.add_done_callback(retrieve_error)

    def _refusal(self, aligners: AlignerWorkers, sentence: Sentence, pcm: bytes) -> Reason | None:
        if not aligners.count:
            return Reason.NO_ALIGNER
        if sentence.languages != {ALIGNED_LANGUAGE} or is_another_language(word.text for word in sentence.words):
            return Reason.LANGUAGE
        waiting = sum(len(spoken.pcm) for spoken in self._waiting)
        if waiting and waiting + len(pcm) > 2 * spec.SAMPLE_RATE * MOST_SECONDS:
            return Reason.BUSY
        return None

    @property
    def pending(self) -> bool:
        """Whether times of words are still to come."""
        return self._task is not None and not self._task.done()

    async def complete(self) -> None:
        """All sound has been handed over: wait for the times of its words, a bounded time, and not
        until the caller's deadline.
        """
        if self._task is not None and not self._task.done():
            begun, left = time.monotonic(), remaining()
            longest = self._aligners.wait_seconds
            longest = longest if left is None else max(min(longest, left - _BEFORE_DEADLINE_SECONDS), 0.0)
            await asyncio.wait([self._task], timeout=longest)
            self.waited_seconds = time.monotonic() - begun
            self.cancel()

    def cancel(self) -> None:
        """End the work for sentences whose words have no times yet."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
        for spoken in self._waiting:
            self.untimed.add(Reason.BUSY, spoken.sentence.index)
        self._waiting.clear()

    async def _align(self) -> None:
        while self._waiting:
            # It stays in the queue until its times are known: what is cancelled is counted.
            sentence, pcm, begin = self._waiting[0]
            try:
                spans = await self._aligners.align([word.text for word in sentence.words], pcm)
            except Untimed as untimed:
                self.untimed.add(untimed.reason, sentence.index)
            except Exception as error:
                log.warning("words were not aligned: %s", type(error).__name__)
                self.untimed.add(Reason.NOT_ALIGNED, sentence.index)
            else:
                self.words += [
                    WordTime(word.text, begin + start, begin + end, sentence.index)
                    for word, (start, end) in zip(sentence.words, spans, strict=True)
                ]
            self._waiting.popleft()


def is_another_language(words: Iterable[str]) -> bool:
    """Whether at least two words, and a fifth of all, are frequent in another language and not in
    English.
    """
    plain = [word.strip(".,;:!?¿¡\"'()").lower() for word in words]
    found = sum(word in _FOREIGN for word in plain)
    return found >= _LEAST and found >= _SHARE * len(plain)
