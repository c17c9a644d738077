"""The words of one request that are found in its sound: in order, with their place in the
utterance, each sentence that has none counted once.
"""

import asyncio
from collections.abc import Sequence

import pytest

from cosyserve.spec import SAMPLE_RATE
from services.orchestrator.aligning import late_words
from services.orchestrator.aligning.late_words import LateWords
from services.orchestrator.aligning.untimed import Reason, Untimed
from services.orchestrator.aligning.workers import AlignerWorkers
from services.orchestrator.speech.utterance import Sentence, SpokenWord
from services.orchestrator.speech.word_alignment import WordTime

SECOND = bytes(2 * SAMPLE_RATE)


class Scripted(AlignerWorkers):
    """Answers when it is allowed to."""

    def __init__(self, *, allowed: bool = True, wait_seconds: float = 60.0) -> None:
        super().__init__(1, wait_seconds)
        self.allowed = asyncio.Event()
        self.ended = 0
        if allowed:
            self.allowed.set()

    async def align(self, words: Sequence[str], pcm: bytes) -> list[tuple[float, float]]:
        try:
            await self.allowed.wait()
        finally:
            self.ended += 1
        if "mumbled" in words:
            raise Untimed(Reason.NOT_ALIGNED)
        return [(0.25 * place, 0.25 * (place + 1)) for place in range(len(words))]


def sentence(index: int, *words: str, language: str = "en") -> Sentence:
    spoken = [SpokenWord(word, place, 1) for place, word in enumerate(words)]
    return Sentence(index, tuple(range(len(words) or 1)), 0, spoken, language=language)


async def test_words_come_in_order_with_their_place_in_the_utterance() -> None:
    late, aligners = LateWords(), Scripted()
    late.add(aligners, sentence(0, "one", "two"), SECOND, 0)
    late.add(aligners, sentence(1), SECOND, SAMPLE_RATE)
    late.add(aligners, sentence(2, "three"), SECOND, 2 * SAMPLE_RATE)
    assert late.pending
    await late.complete()
    assert not late.pending
    assert late.words == [
        WordTime("one", 0.0, 0.25, 0), WordTime("two", 0.25, 0.5, 0), WordTime("three", 2.0, 2.25, 2),
    ]  # fmt: skip
    late.add(aligners, sentence(3, "four"), SECOND, 3 * SAMPLE_RATE)
    await late.complete()
    assert late.words[-1] == WordTime("four", 3.0, 3.25, 3)
    assert late.untimed.by_reason == {}


async def test_a_sentence_without_times_is_counted_with_its_reason() -> None:
    late, aligners = LateWords(), Scripted()
    for index, spoken in enumerate(
        [
            sentence(0, "one"),
            sentence(1, "mumbled"),
            sentence(2, "eins", language="de"),
            sentence(3, "zwei", language="de"),
            sentence(4, language="zh"),
        ]
    ):
        late.add(aligners, spoken, SECOND, index * SAMPLE_RATE)
    late.add(AlignerWorkers(), sentence(5, "five"), SECOND, 0)
    await late.complete()
    assert [word.text for word in late.words] == ["one"]
    assert late.untimed.by_reason == {
        Reason.LANGUAGE: (2, 2), Reason.NO_ALIGNER: (5, 1), Reason.NOT_ALIGNED: (1, 1),
    }  # fmt: skip


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_what_is_not_known_at_the_end_is_given_up(hangs_up: bool) -> None:
    late, aligners = LateWords(), Scripted(allowed=False, wait_seconds=0.0)
    for index in range(3):
        late.add(aligners, sentence(index, "word"), SECOND, 0)
    await asyncio.sleep(0)
    if hangs_up:
        late.cancel()
    else:
        await late.complete()
    late.cancel()
    aligners.allowed.set()
    while aligners.ended < 1:
        await asyncio.sleep(0)
    assert (late.words, late.untimed.by_reason, late.pending) == ([], {Reason.BUSY: (0, 3)}, False)


async def test_the_sound_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_words, "MOST_SECONDS", 2.5)
    late, aligners = LateWords(), Scripted(allowed=False)
    for index in range(4):
        late.add(aligners, sentence(index, "word"), SECOND, 0)
    assert late.untimed.by_reason == {Reason.BUSY: (2, 2)}
    aligners.allowed.set()
    await late.complete()
    assert [word.sentence for word in late.words] == [0, 1]
