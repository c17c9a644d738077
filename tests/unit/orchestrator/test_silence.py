"""Silence between two sentences, where the request leaves it to us, and at both ends of an
utterance: what is removed, kept, withheld and counted, however the sound is cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from cosyserve.errors import FailedPrecondition
from services.orchestrator.speech.silence import (
    LONG_TOKENS,
    SENTENCE_PAUSE_MILLISECONDS,
    SHORT_TOKENS,
    SilenceTrimmer,
    Trimming,
    default_pause,
)
from services.orchestrator.stages import engines

RATE = 24_000
LOUD = 104
"""The least magnitude above -50 dBFS: 32768 * 10 ** (-50 / 20) is 103.6."""
LEAD, TAIL = 480, 2_400


def sound(*parts: tuple[int, int]) -> NDArray[np.int16]:
    """Parts of (samples, magnitude), of alternating sign."""
    samples = np.concatenate([np.full(count, value) for count, value in parts])
    return (samples * np.where(np.arange(samples.size) % 2, -1, 1)).astype("<i2")


@dataclass
class Sent:
    """What a trimmer has handed on."""

    trimming: Trimming = field(default_factory=Trimming)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def samples(self) -> NDArray[np.int16]:
        return np.frombuffer(b"".join(self.pieces), "<i2")

    async def play(self, pcm: bytes) -> None:
        assert pcm, "a message without audio"
        self.pieces.append(pcm)


def begun(*, trimmed: bool = True) -> tuple[Sent, SilenceTrimmer]:
    found = Sent()
    return found, SilenceTrimmer(found.play, found.trimming, trimmed=trimmed)


async def sent(
    sentences: Sequence[NDArray[np.int16]],
    cut: int,
    *,
    pauses: Sequence[int] = (),
    closing: int = 0,
    known_at_once: bool = False,
    trimmed: bool = True,
) -> Sent:
    """Sentences in pieces of `cut` samples. pauses: milliseconds in front of each. known_at_once:
    all of them before the first sound.
    """
    found, trimmer = begun(trimmed=trimmed)
    for index, samples in enumerate(sentences):
        found.trimming.sentences = len(sentences) if known_at_once else index + 1
        await trimmer.pause(pauses[index] if pauses else 0)
        trimmer.start(index)
        for begin in range(0, len(samples), cut):
            await trimmer.play(samples[begin : begin + cut].tobytes())
    if closing:
        await trimmer.pause(closing, closing=True)
    await trimmer.end()
    return found


CUTS = (1, 7, 960, 2_881, 1_000_000)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("known_at_once", [False, True])
async def test_both_ends_are_cut_and_nothing_in_between(cut: int, known_at_once: bool) -> None:
    first = sound((3_000, LOUD - 1), (50, LOUD), (4_000, 3), (10, 9_000), (5_000, LOUD - 1))
    last = sound((2_900, 0), (7, 500), (6_000, 1), (1, LOUD), (3_333, LOUD - 1))
    natural = np.concatenate([first, np.zeros(4_800, "<i2"), last])
    found = await sent((first, last), cut, pauses=(0, 200), known_at_once=known_at_once)
    assert (found.trimming.removed_start, found.trimming.removed_end) == (3_000 - LEAD, 3_333 - TAIL)
    assert np.array_equal(found.samples, natural[3_000 - LEAD : len(natural) - (3_333 - TAIL)])
    assert np.array_equal((await sent((first, last), cut, pauses=(0, 200), trimmed=False)).samples, natural)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(("lead", "tail"), [(0, 0), (LEAD - 1, TAIL - 1), (LEAD, TAIL), (LEAD + 1, TAIL + 1)])
async def test_what_is_shorter_than_what_is_kept_stays(cut: int, lead: int, tail: int) -> None:
    natural = sound((lead, 1), (20, LOUD), (tail, 1))
    found = await sent((natural,), cut)
    begin, end = max(0, lead - LEAD), len(natural) - max(0, tail - TAIL)
    assert np.array_equal(found.samples, natural[begin:end])


@pytest.mark.parametrize("sample", [LOUD, -LOUD, 32_767, -32_768])
async def test_one_sample_of_either_sign_is_a_beginning(sample: int) -> None:
    natural = np.zeros(10_000, "<i2")
    natural[5_000] = sample
    assert np.array_equal((await sent((natural,), 960)).samples, natural[5_000 - LEAD : 5_001 + TAIL])


@pytest.mark.parametrize("cut", CUTS)
async def test_pauses_that_the_text_asks_for_are_sent_in_full_around_the_cuts(cut: int) -> None:
    natural = sound((3_000, 1), (50, 900), (5_000, 1))
    found = await sent((natural,), cut, pauses=(500,), closing=1_500)
    kept = natural[3_000 - LEAD : 3_050 + TAIL]
    assert np.array_equal(found.samples, np.concatenate([np.zeros(12_000, "<i2"), kept, np.zeros(36_000, "<i2")]))
    assert (found.trimming.start, found.trimming.removed_start, found.trimming.removed_end) == (12_000, 2_520, 2_600)


@pytest.mark.parametrize("cut", CUTS)
async def test_a_sentence_without_anything_above_the_level_is_sent_in_full(cut: int) -> None:
    quiet, loud = sound((9_000, LOUD - 1)), sound((3_000, 2), (50, 900), (5_000, 2))
    for sentences, natural in (
        ((quiet,), quiet),
        ((quiet, loud), np.concatenate([quiet, loud[: -(5_000 - TAIL)]])),
        ((loud, quiet), np.concatenate([loud[3_000 - LEAD :], quiet])),
    ):
        for known in (False, True):
            assert np.array_equal((await sent(sentences, cut, known_at_once=known)).samples, natural)


@pytest.mark.parametrize("known_from", [0, 20_000, 1_000_000])
async def test_what_is_withheld_is_no_more_than_what_may_be_removed(known_from: int) -> None:
    """At each moment all is sent but the quiet samples behind the tail; none is withheld once
    another sentence is known, which it is from the sample known_from on.
    """
    natural = sound((50, 900), (30_000, 1), (50, 900), (9_000, 1))
    found, trimmer = begun()
    trimmer.start(0)
    for begin in range(0, len(natural), 960):
        found.trimming.sentences = 1 if begin < known_from else 2
        await trimmer.play(natural[begin : begin + 960].tobytes())
        here = natural[: begin + 960]
        behind = len(here) - 1 - np.flatnonzero(np.abs(here.astype(np.int32)) >= LOUD)[-1]
        assert found.samples.size == len(here) - (max(0, behind - TAIL) if begin < known_from else 0)


async def test_a_failed_attempt_of_which_nothing_was_sent_leaves_nothing() -> None:
    found, trimmer = begun()
    await trimmer.pause(100)
    trimmer.start(0)
    await trimmer.play(sound((5_000, 1)).tobytes())
    assert not trimmer.heard
    assert trimmer.begin == 2_400
    trimmer.start(0)
    await trimmer.play(sound((600, 1), (50, 900)).tobytes())
    assert trimmer.heard
    await trimmer.end()
    assert (found.samples.size, found.trimming.removed_start) == (2_400 + LEAD + 50, 120)


@pytest.mark.parametrize("trimmed", [False, True])
async def test_a_sentence_begins_behind_what_was_sent(trimmed: bool) -> None:
    _, trimmer = begun(trimmed=trimmed)
    for index in range(2):
        await trimmer.pause(10)
        trimmer.start(index)
        assert not trimmer.heard
        await trimmer.play(sound((480, 1), (50, 900), (480, 1)).tobytes())
        assert trimmer.heard
    assert trimmer.begin == 240 + 1_010 + 240


def test_places_count_what_is_sent_and_are_never_negative() -> None:
    trimming = Trimming(removed_start=2_400, start=12_000)
    assert [trimming.sent_seconds(at) for at in (0.0, 0.3, 0.5, 0.55, 0.6, 0.75)] == pytest.approx(
        [0.0, 0.3, 0.5, 0.5, 0.5, 0.65]
    )


def test_short_replies_follow_at_once_and_sentences_after_a_breath() -> None:
    assert [default_pause(tokens) for tokens in (0, 1, SHORT_TOKENS)] == [0, 0, 0]
    assert [default_pause(tokens) for tokens in (LONG_TOKENS, 500)] == [SENTENCE_PAUSE_MILLISECONDS] * 2
    assert default_pause(35) == 100
    between = [default_pause(tokens) for tokens in range(SHORT_TOKENS, LONG_TOKENS + 1)]
    assert between == sorted(between)


def test_other_pauses_are_another_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes here moves the samples of a request that is resumed: with new values comes a new
    ASSEMBLY.
    """
    assert (engines.ASSEMBLY, [default_pause(tokens) for tokens in (20, 25, 30, 35, 40, 45, 50, 60, 80)]) == (
        2,
        [0, 33, 67, 100, 133, 167, 200, 200, 200],
    )
    resumed = engines.Engines(wanted=engines.Engines().name)
    resumed.require()
    monkeypatch.setattr(engines, "ASSEMBLY", 3)
    with pytest.raises(FailedPrecondition, match="the request was begun by engines"):
        resumed.require()
