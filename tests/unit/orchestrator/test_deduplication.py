"""A sentence that frontends send again, in whatever parts, is spoken once."""

import itertools

import pytest

from cosyserve.v1 import frontend_pb2
from services.orchestrator.speech.utterance import Sentence
from services.orchestrator.stages.frontend import SentenceDeduplicator

IDS = tuple(range(100, 120))
WORDS = (("one", 1, 3), ("two", 5, 2), ("three", 8, 4), ("four", 13, 6))
BORDERS = (0, 5, 8, 13, 20)
"""Of ids; each word in one part, as the frontend sends them."""


class Taken:
    """The sentences that were handed on, of a text that is still being written."""

    def __init__(self) -> None:
        self.sentences = list[Sentence]()
        self._deduplicator = SentenceDeduplicator(self._take, by_token=True)
        self.restart = self._deduplicator.restart

    async def _take(self, sentence: Sentence) -> None:
        self.sentences.append(sentence)

    async def add(self, index: int, ids: tuple[int, ...], *, unfinished: bool, begin: int = 0) -> None:
        words = [
            frontend_pb2.SpokenWord(text=text, first_id=first, ids=count)
            for text, first, count in WORDS
            if begin <= first < begin + len(ids)
        ]
        message = frontend_pb2.Sentence(index=index, token_ids=ids, words=words)
        await self._deduplicator.add(message, unfinished=unfinished)

    async def add_parts(self, index: int, borders: tuple[int, ...]) -> None:
        for begin, end in itertools.pairwise(borders):
            await self.add(index, IDS[begin:end], unfinished=True, begin=begin)


@pytest.mark.parametrize("sent_before", range(len(BORDERS)))
@pytest.mark.parametrize("again", [BORDERS, (0, 20), (0, 13, 20), (0, 8, 20)])
async def test_an_open_sentence_that_is_sent_again_has_its_ids_and_words_once(
    sent_before: int, again: tuple[int, ...]
) -> None:
    taken = Taken()
    await taken.add_parts(0, BORDERS[: sent_before + 1])
    taken.restart()
    await taken.add_parts(0, again)
    await taken.add(0, (), unfinished=False)
    await taken.add_parts(1, BORDERS)
    first, second = taken.sentences
    assert (first.complete, second.complete) == (True, False)
    for sentence in (first, second):
        assert tuple(itertools.chain(*sentence.pieces)) == IDS
        assert sentence.length == len(IDS)
        assert [(word.text, word.first_id, word.ids) for word in sentence.words] == list(WORDS)


async def test_a_sentence_that_was_complete_is_taken_once() -> None:
    taken = Taken()
    for again in range(2):
        taken.restart()
        await taken.add(0, (1, 2), unfinished=True)
        await taken.add(0, (3,), unfinished=False)
        await taken.add(1, (4,) if again == 0 else (4, 5), unfinished=True)
    await taken.add(1, (6,), unfinished=False)
    first, second = taken.sentences
    assert (first.pieces, first.complete) == ([(1, 2), (3,)], True)
    assert (second.pieces, second.complete) == ([(4,), (5,), (6,)], True)
