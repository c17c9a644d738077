"""How long the player of a listener is kept busy by what was delivered."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from cosyserve.audio.encoding import to_pcm
from cosyserve.spec import SAMPLE_RATE
from services.orchestrator.speech.silence import SilenceTrimmer, Trimming
from services.token2wav.scheduling.playing_time import PlayingTime

Samples = NDArray[np.float32]


def sound(seconds: float) -> Samples:
    return np.full(round(seconds * SAMPLE_RATE), 0.1, np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def delivered(pieces: Sequence[Samples], *, heard: bool = False, withholds: bool = True) -> list[float]:
    time = PlayingTime(heard, withholds)
    return [time.deliver(piece, last=at == len(pieces) - 1) for at, piece in enumerate(pieces)]


def test_silence_in_front_is_skipped_but_for_its_lead() -> None:
    pieces = [np.concatenate([silence(0.3), sound(0.5)]), sound(1.0)]
    assert delivered(pieces) == pytest.approx([0.52, 1.0])


def test_of_a_listener_who_has_heard_something_silence_in_front_is_played() -> None:
    assert delivered([np.concatenate([silence(0.3), sound(0.5)]), sound(1.0)], heard=True) == pytest.approx([0.8, 1.0])


def test_silence_beyond_the_tail_counts_with_what_follows_it() -> None:
    pieces = [np.concatenate([sound(0.5), silence(0.3)]), silence(0.2), sound(1.0), silence(0.05)]
    assert delivered(pieces) == pytest.approx([0.6, 0.0, 1.4, 0.05])


def test_it_counts_at_once_where_the_caller_sends_it() -> None:
    pieces = [np.concatenate([sound(0.5), silence(0.3)]), silence(0.2), sound(1.0), silence(0.05)]
    assert delivered(pieces, withholds=False) == pytest.approx([0.8, 0.2, 1.0, 0.05])


def test_silence_in_front_of_a_later_sentence_counts_at_once() -> None:
    pieces = [silence(0.5), silence(0.5), np.concatenate([sound(0.5), silence(0.3)]), sound(0.5)]
    assert delivered(pieces, heard=True) == pytest.approx([0.5, 0.5, 0.6, 0.7])


def test_what_a_resumed_stream_had_before_is_kept_back_too() -> None:
    time = PlayingTime(True, True)
    time.skip(np.concatenate([sound(0.5), silence(0.3)]))
    assert time.withheld_seconds == pytest.approx(0.2)
    assert time.deliver(np.concatenate([silence(0.2), sound(0.5)]), last=False) == pytest.approx(0.9)


def test_all_of_the_last_audio_counts() -> None:
    assert delivered([sound(0.5), np.concatenate([sound(0.5), silence(0.4)])]) == pytest.approx([0.5, 0.9])


def test_behind_the_last_audio_nothing_is_kept_back() -> None:
    time = PlayingTime(withholds=True)
    time.deliver(np.concatenate([sound(0.5), silence(0.4)]), last=True)
    assert time.withheld_seconds == 0


def test_what_is_asked_before_the_delivery_is_what_the_delivery_says() -> None:
    time = PlayingTime(withholds=True)
    for piece in (silence(0.1), np.concatenate([sound(0.5), silence(0.3)]), silence(0.2), sound(1.0)):
        assert time.seconds(piece, last=False) == time.deliver(piece, last=False)


@pytest.mark.parametrize("following", [0, 1], ids=["the last", "one follows"])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("seed", range(10))
async def test_it_is_what_the_trimmer_sends_once_something_is_heard(seed: int, index: int, following: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [(sound, silence)[(at + seed) % 2](float(rng.uniform(0.01, 0.4))) for at in range(20)]
    samples = np.concatenate(parts)
    cuts = np.sort(rng.integers(0, samples.size, 12))
    sent: list[int] = []

    async def play(pcm: bytes) -> None:
        sent.append(len(pcm) // 2)

    trimming = Trimming(sentences=index + 1 + following)
    trimmer, time = SilenceTrimmer(play, trimming, trimmed=True), PlayingTime(index > 0, trimming.may_end_with(index))
    trimmer.start(index)
    for piece in np.split(samples, cuts):
        before = sum(sent)
        await trimmer.play(to_pcm(piece))
        seconds = time.deliver(piece, last=False)
        if time.is_heard:
            assert seconds * SAMPLE_RATE == pytest.approx(sum(sent) - before)
