"""What a frontend tells again, in whatever parts, is heard once."""

import itertools

import pytest

from services.orchestrator.speech.utterance import OpenSentence, Sentence, SpokenWord
from services.orchestrator.stages.frontend import SentenceDeduplicator

IDS = tuple(range(100, 120))
WORDS = tuple(
    SpokenWord(text, first, ids)
    for text, first, ids in (("one", 1, 3), ("two", 5, 2), ("three", 8, 4), ("four", 13, 6))
)
BORDERS = (0, 5, 8, 13, 20)
"""Of ids; each word in one part, as the frontend tells them."""


def parts(index: int, borders: tuple[int, ...]) -> list[Sentence]:
    return [
        Sentence(index, IDS[begin:end], words=tuple(word for word in WORDS if begin <= word.first_id < end))
        for begin, end in itertools.pairwise(borders)
    ]


@pytest.mark.parametrize("told_before", range(len(BORDERS)))
@pytest.mark.parametrize("retold", [BORDERS, (0, 20), (0, 13, 20), (0, 8, 20)])
async def test_an_open_sentence_that_is_told_again_has_its_ids_and_words_once(
    told_before: int, retold: tuple[int, ...]
) -> None:
    taken = list[Sentence | OpenSentence]()

    async def take(sentence: Sentence | OpenSentence) -> None:
        taken.append(sentence)

    sentences = SentenceDeduplicator(take)
    for part in parts(0, BORDERS)[:told_before]:
        await sentences.add(part, whole=False, unfinished=True)
    sentences.restart()
    for part in parts(0, retold):
        await sentences.add(part, whole=False, unfinished=True)
    await sentences.add(Sentence(0, ()), whole=False, unfinished=False)
    for part in parts(1, BORDERS):
        await sentences.add(part, whole=False, unfinished=True)
    first, second = taken
    assert isinstance(first, OpenSentence)
    assert isinstance(second, OpenSentence)
    assert first.complete
    assert not second.complete
    for sentence in (first, second):
        assert tuple(itertools.chain(*sentence.pieces)) == IDS
        assert sentence.length == len(IDS)
        assert tuple(sentence.words) == WORDS
