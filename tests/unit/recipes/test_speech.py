"""The reader of the teacher's speech, on a work folder of four utterances in two shards."""

import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.spec import SAMPLE_RATE, SAMPLES_PER_TOKEN
from recipes.demo_voice.training.speech import Recording, Speech
from recipes.demo_voice.wavs import write_wavs

SENTENCES = "1\ttrain\tOne two.\twˈʌn tˈu.\n2\theld_out\tThree.\tθɹˈi.\n3\tquality\tFour.\tfˈɔɹ.\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    (tmp_path / "speech").mkdir()
    (tmp_path / "text" / "sentences.tsv").write_text(SENTENCES, encoding="utf-8")
    shard(
        tmp_path,
        "01",
        [
            Recording(3, "b", 1.0, 0, SAMPLES_PER_TOKEN),
            Recording(2, "a", 0.95, SAMPLES_PER_TOKEN, 2 * SAMPLES_PER_TOKEN),
        ],
    )
    shard(
        tmp_path,
        "00",
        [
            Recording(1, "a", 1.05, 0, 2 * SAMPLES_PER_TOKEN),
            Recording(2, "b", 1.0, 2 * SAMPLES_PER_TOKEN, SAMPLES_PER_TOKEN),
        ],
    )
    return tmp_path


def shard(work: Path, name: str, recordings: list[Recording]) -> None:
    """A ramp per shard, so that every sample shows its place and its shard."""
    total = sum(each.samples for each in recordings)
    (np.arange(total, dtype="<i2") + 10_000 * int(name)).tofile(work / "speech" / f"{name}.s16")
    (work / "speech" / f"{name}.tsv").write_text("".join(each.line() for each in recordings), encoding="utf-8")


def test_utterances_come_in_the_order_of_shards_and_places(work: Path) -> None:
    speech = Speech.read(work)
    assert [
        (each.number, each.sentence, each.voice, each.speed, each.start, each.samples) for each in speech.utterances
    ] == [
        (0, 1, "a", 1.05, 0, 1920),
        (1, 2, "b", 1.0, 1920, 960),
        (2, 3, "b", 1.0, 2880, 960),
        (3, 2, "a", 0.95, 3840, 1920),
    ]
    assert (speech.utterances[0].text, speech.utterances[0].phonemes) == ("One two.", "wˈʌn tˈu.")
    assert (speech.tokens, speech.first) == ([2, 1, 1, 2], [0, 2, 3, 4])
    assert (speech.training, speech.held_out) == ([0], [1, 3])


def test_wave_is_scaled_and_lies_where_it_was_written(work: Path) -> None:
    speech = Speech.read(work)
    assert speech.audio.dtype == torch.int16
    torch.testing.assert_close(speech.wave(1), torch.arange(1920, 2880) / 32768)
    torch.testing.assert_close(speech.wave(3), (torch.arange(960, 2880) + 10_000) / 32768)


def test_what_an_interrupted_synthesis_leaves_is_passed_over(work: Path) -> None:
    with (work / "speech" / "00.tsv").open("a", encoding="utf-8") as table:
        table.write(Recording(1, "a", 1.0, 3 * SAMPLES_PER_TOKEN, SAMPLES_PER_TOKEN).line())
        table.write("1\ta\t1\t38")
    assert len(Speech.read(work).utterances) == 4


def test_no_speech_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "sentences.tsv").write_text(SENTENCES, encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="speech"):
        Speech.read(tmp_path)


def test_wav_files_are_numbered_as_the_sentences_of_their_split(work: Path) -> None:
    assert write_wavs(work, work / "wavs", "quality") == {"b": 1}
    with wave.open(str(work / "wavs" / "b" / "001.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth(), file.getnframes()) == (
            SAMPLE_RATE,
            1,
            2,
            SAMPLES_PER_TOKEN,
        )
        assert np.frombuffer(file.readframes(2), "<i2").tolist() == [10_000, 10_001]
