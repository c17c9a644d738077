"""Passes each sentence of a text on once, also if another frontend replica sends some of them
again.
"""

from collections.abc import Awaitable, Callable

from services.orchestrator.speech.utterance import OpenSentence, Sentence


class SentenceDeduplicator:
    """Hands each sentence to `take` once and in order: when it is complete, or when its first ids
    are there.
    """

    def __init__(self, take: Callable[[Sentence | OpenSentence], Awaitable[None]]) -> None:
        self._take = take
        self._sentences = 0
        self._open: OpenSentence | None = None
        self._received = 0
        self._closed = False

    def restart(self) -> None:
        """Another replica sends the sentences again, from one that may be complete or open."""
        self._received = 0

    async def add(self, news: Sentence, *, whole: bool, unfinished: bool) -> None:
        """news: a sentence or, unless `whole`, the ids that continue it. unfinished: more ids
        follow.
        """
        if whole:
            if news.index == self._sentences:
                self._sentences += 1
                await self._take(news)
            return
        if news.index == self._sentences:
            await self._extend(news)
        self._received = self._received + len(news.token_ids) if unfinished else 0
        if news.index == self._sentences and not unfinished:
            self._end()

    async def close(self, pause_milliseconds: int) -> None:
        """The text asks for silence after its last sentence."""
        if not self._closed:
            self._closed = True
            await self._take(Sentence(self._sentences, (), pause_milliseconds))

    async def _extend(self, news: Sentence) -> None:
        """Pass on the ids that were not received before."""
        known = 0 if self._open is None else self._open.length
        fresh = news.token_ids[max(0, known - self._received) :]
        words = [word for word in news.words if word.first_id >= known]
        if fresh and self._open is None:
            self._open = OpenSentence(news.index, news.pause_before_milliseconds, news.rate, continues=news.continues)
            self._open.extend(fresh, words)
            await self._take(self._open)
        elif self._open is not None:
            self._open.extend(fresh, words)

    def _end(self) -> None:
        if self._open is not None:
            self._open.end()
        self._open = None
        self._sentences += 1
