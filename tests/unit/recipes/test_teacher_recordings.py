"""What surrounds the teacher's network: voices, the plan, the finish of a recording, shards that
survive an end at any moment.
"""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cosyserve.spec import SAMPLES_PER_TOKEN
from recipes.demo_voice.teacher import plan
from recipes.demo_voice.teacher.kokoro import numbers
from recipes.demo_voice.teacher.recordings import LOUDNESS, Refused, Shard, finish, recorded
from recipes.demo_voice.training.speech import Sentence, read_recordings

PRESETS = ["af_bella", "af_heart", "af_nicole", "am_fenrir", "am_michael", "am_puck", "bf_emma"]
SENTENCES = [Sentence(number, "train", "Some text.", "a" * (1 + number % 7)) for number in range(2000)]


def tone(seconds: float, quiet: float = 0.5, loudness: float = 0.2) -> NDArray[np.float32]:
    """A tone with silence before and behind it."""
    time = np.arange(round(24_000 * seconds)) / 24_000
    silence = np.zeros(round(24_000 * quiet))
    return np.concatenate([silence, loudness * np.sin(2 * np.pi * 200 * time), silence]).astype(np.float32)


def test_the_plan_shares_out_the_voices() -> None:
    voices = Counter(job.voice for job in islice(plan.varied(SENTENCES, PRESETS, seed=1), len(SENTENCES)))
    assert [voices[voice] for voice in ("af_heart", "am_michael")] == pytest.approx([600, 600], abs=70)
    assert sum(voices[voice] for voice in PRESETS if voice not in plan.MAIN_VOICES) == pytest.approx(400, abs=60)
    assert sum(count for voice, count in voices.items() if "+" in voice) == pytest.approx(400, abs=60)


def test_no_voice_says_a_sentence_twice() -> None:
    jobs = list(plan.varied(SENTENCES, PRESETS, seed=1))
    assert len(jobs) == 4 * len(SENTENCES)
    assert len({(job.sentence.number, job.voice) for job in jobs}) == len(jobs)
    assert {job.speed for job in jobs} == set(plan.SPEEDS)
    assert jobs[:50] == list(islice(plan.varied(SENTENCES, PRESETS, seed=1), 50))


def test_silence_is_trimmed_and_loudness_set() -> None:
    piece = finish(tone(1.0), characters=15)
    assert piece.dtype == np.int16
    assert len(piece) % SAMPLES_PER_TOKEN == 0
    assert 1.2 <= len(piece) / 24_000 < 1.2 + SAMPLES_PER_TOKEN / 24_000
    assert np.sqrt(np.square(piece[2400:-4000] / 32767).mean()) == pytest.approx(LOUDNESS, rel=0.02)
    assert piece[0] == piece[-1] == 0


CLICK = tone(1.0, loudness=0.01)
CLICK[20_000] = 1.0


@pytest.mark.parametrize(
    ("samples", "characters", "reason"),
    [
        (CLICK, 15, "peaky"),
        (tone(1.0, loudness=1e-5), 15, "silent"),
        (np.zeros(100, np.float32), 15, "silent"),
        (tone(0.2), 3, "short"),
        (tone(16.0), 200, "long"),
        (tone(2.0), 5, "slow"),
        (tone(2.0), 80, "fast"),
    ],
)
def test_a_spoilt_recording_is_refused(samples: NDArray[np.float32], characters: int, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        finish(samples, characters)


def test_a_shard_goes_on_after_its_last_whole_recording(tmp_path: Path) -> None:
    first, second, third = (np.full(SAMPLES_PER_TOKEN, value, np.int16) for value in (1, 2, 3))
    with Shard(tmp_path, "00") as shard:
        shard.add([(7, "a", 0.95, first), (8, "b", 1.0, second)])
    with (tmp_path / "00.s16").open("r+b") as audio:
        audio.truncate(3 * SAMPLES_PER_TOKEN)
    with (tmp_path / "00.tsv").open("a", encoding="utf-8") as table:
        table.write("9\ta\t1")
    with Shard(tmp_path, "00") as shard:
        shard.add([(10, "c", 1.1, third)])
    assert [(each.sentence, each.voice, each.speed, each.start) for each in recorded(tmp_path)] == [
        (7, "a", 0.95, 0),
        (10, "c", 1.1, SAMPLES_PER_TOKEN),
    ]
    samples = np.fromfile(tmp_path / "00.s16", "<i2")
    assert samples.tolist() == [1] * SAMPLES_PER_TOKEN + [3] * SAMPLES_PER_TOKEN
    assert list(read_recordings(tmp_path / "00.tsv", len(samples))) == list(recorded(tmp_path))


def test_phonemes_have_the_teachers_numbers() -> None:
    assert numbers("hˈI, ᵻ") == [50, 156, 25, 3, 16, 177]
    with pytest.raises(ValueError, match="no phoneme '€'"):
        numbers("a€")
