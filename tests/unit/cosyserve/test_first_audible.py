"""Time to the first audible sample: first byte and leading silence, in every encoding, also when
the sound comes in a later message.
"""

import numpy as np
import pytest
from cosyserve.audio.audibility import FirstAudible, samples_above

from cosyserve.audio.encoding import Encoding, encode


def pcm(quiet: int, loud: int) -> bytes:
    return np.concatenate([np.full(quiet, 327), np.full(loud, 328)]).astype("<i2").tobytes()


def test_the_level_is_that_of_full_scale() -> None:
    """-40 dB of 32768 is 327.7; -50 dB is 103.6."""
    samples = np.array([0, 327, -327, 328, -328, 32_767, -32_768], np.int16)
    assert samples_above(samples, -40.0).tolist() == [3, 4, 5, 6]
    assert samples_above(np.array([103, 104, -103, -104], np.int16), -50.0).tolist() == [1, 3]
    assert samples_above(np.array([], np.int16), -40.0).size == 0


def test_it_is_the_first_byte_and_the_silence_in_front() -> None:
    player = FirstAudible(Encoding.LINEAR16, 24_000)
    player.arrived(0.5, pcm(2_400, 10))
    player.arrived(0.9, pcm(0, 10))
    assert player.seconds == pytest.approx(0.6)


@pytest.mark.parametrize(("second", "heard"), [(0.55, 0.65), (0.6, 0.65), (0.75, 0.8)])
def test_a_later_message_is_played_when_it_is_there_and_the_one_before_is_over(second: float, heard: float) -> None:
    """The first message lasts from 0.5 to 0.6 s and is silent; the sound is 50 ms inside the
    second.
    """
    player = FirstAudible(Encoding.LINEAR16, 24_000)
    player.arrived(0.5, pcm(2_400, 0))
    assert player.seconds is None
    player.arrived(second, pcm(1_200, 10))
    assert player.seconds == pytest.approx(heard)


@pytest.mark.parametrize("encoding", [Encoding.MULAW, Encoding.ALAW])
def test_eight_bit_samples_are_measured_by_what_they_stand_for(encoding: Encoding) -> None:
    """Their steps at this level are 16 to 32: so not at the level itself."""
    player = FirstAudible(encoding, 8_000)
    player.arrived(
        1.0,
        encode(
            np.concatenate([np.full(80, 290), np.full(80, -290), np.full(9, -370)]).astype("<i2").tobytes(), encoding
        ),
    )
    assert player.seconds == pytest.approx(1.02)


def test_silence_has_no_first_audible_sample() -> None:
    player = FirstAudible(Encoding.LINEAR16, 24_000)
    player.arrived(0.1, pcm(24_000, 0))
    assert player.seconds is None
