"""Cloning, measured: what is cut from a recording, what the copied model holds, who is near to
whom, what is refused.
"""

import shutil
import wave
from pathlib import Path

import numpy as np
import pytest

from cosyserve.audio.encoding import to_pcm
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.voices.speaker_file import read_voices
from services.frontend.voices.voice import Voice
from tests.unit.quality.tones import RATE, tone
from tools.quality import clone
from tools.quality.recordings.recording import Recording, Samples
from tools.quality.recordings.voice_making import opening, vocoded_prompts, with_voices
from tools.quality.sound.speakers import Likeness, as_table, nearness

TINY = Path(__file__).parents[2] / "golden" / "tiny"
PRESETS = read_voices(ModelDirectory(TINY), read_tokenizer(ModelDirectory(TINY)))


def write(path: Path, samples: Samples, channels: int = 1, width: int = 2) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, RATE, 0, "NONE", ""))
        file.writeframes(to_pcm(np.repeat(samples, channels * width // 2)))
    return path


def with_pause(seconds: float, pause: float) -> Samples:
    """A tone with 0.2 s of silence from `pause` on."""
    samples = tone(seconds)
    samples[round(pause * RATE) : round((pause + 0.2) * RATE)] = 0
    return samples


def heard(recording: Recording) -> str:
    return f"{recording.seconds:.1f} seconds were heard"


@pytest.mark.parametrize("pause", [4.1, 5.0, 5.7])
def test_a_long_recording_is_cut_in_the_pause(pause: float) -> None:
    samples = with_pause(9.0, pause)
    cut = opening(samples, RATE, 5.0)
    assert pause < len(cut) / RATE < pause + 0.2
    np.testing.assert_array_equal(cut, samples[: len(cut)])


def test_a_short_recording_is_not_cut() -> None:
    assert len(opening(tone(6.0), RATE, 5.0)) == 6 * RATE
    assert 4 <= len(opening(tone(6.1), RATE, 5.0)) / RATE <= 6


def test_a_copied_model_has_its_own_voices_and_the_new_one(tmp_path: Path) -> None:
    dice = np.random.default_rng(1)
    mel, vector = (dice.standard_normal(size, np.float32).tobytes() for size in (14 * 80, 192))
    new = Voice("zoe", (7, 8, 9), (0, 6560, 5, 4, 3, 2, 1), mel, vector)
    copy = ModelDirectory(with_voices(TINY, [new], tmp_path))
    assert read_voices(copy, read_tokenizer(copy)) == sorted([*PRESETS, new], key=lambda voice: voice.id)
    assert {path.name for path in TINY.iterdir()} == {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "llm.pt").samefile(TINY / "llm.pt")


def test_nearer_to_the_speaker_than_to_every_preset() -> None:
    one, two, three = np.eye(3, dtype=np.float32)
    speech = np.stack([0.8 * one + 0.6 * two, 0.6 * one + 0.8 * two])
    near = nearness(speech, one[None], {"near": two[None], "far": three[None]})
    assert (near.own, near.presets["far"]) == pytest.approx((0.7, 0.0))
    assert not near.is_own, "as near to a preset is not nearer"
    assert (near.nearer, near.sentences, near.nearest_preset) == (1, 2, "near")
    clear = nearness(speech[:1], one[None], {"near": two[None]})
    assert clear.is_own
    lines = as_table([Likeness("new", near, clear, {"near": 0.25})]).splitlines()
    assert lines[0] == "new"
    assert lines[1].endswith("0.700  NOT nearest, near is; nearest in 1 of 2 sentences")
    assert lines[4].split() == ["(the", "speech", "of", "near", "to", "the", "recording)", "0.250"]
    assert lines[5].endswith("0.800  nearest; nearest in 1 of 1 sentences")
    assert len(as_table([Likeness("new", near, None, {})]).splitlines()) == 4
    with pytest.raises(ValueError, match="no voice to compare the new one with"):
        nearness(speech, one[None], {})


def test_prompts_through_the_vocoder() -> None:
    prompts = vocoded_prompts(ModelDirectory(TINY), PRESETS)
    assert {name: len(prompt.samples) for name, prompt in prompts.items()} == {
        voice.id: 960 * len(voice.prompt_speech_tokens) for voice in PRESETS if voice.prompt_speech_tokens
    }
    assert 0 < len(prompts) < len(PRESETS), "one has no prompt"


def test_what_is_refused(tmp_path: Path) -> None:
    good, long = write(tmp_path / "ann.wav", tone(1.0)), write(tmp_path / "bob.wav", tone(9.0))
    wide, broken = write(tmp_path / "wide.wav", tone(1.0), width=4), tmp_path / "broken.wav"
    broken.write_bytes(b"nothing")
    for paths, texts, said in (
        ([good], ["one", "two"], "2 texts for 1 recordings"),
        ([good, tmp_path / "other" / "ann.wav"], None, "the same name"),
        ([long], ["so long"], "lasts 9.0 s, of which a part is used: with its text it may last 6 s at most"),
        ([wide], None, "has 32 bits a sample"),
        ([broken], None, "no WAV file"),
    ):
        with pytest.raises(ValueError, match=said):
            clone.read_originals(paths, texts, 5.0, heard)


@pytest.mark.parametrize(
    ("lacking", "recorded", "texts", "message"),
    [
        (None, "ann", ["One.", "Two."], "2 texts for 1 recordings"),
        (None, PRESETS[0].id, ["One."], f"the model has a voice {PRESETS[0].id} already; give the recording another"),
        ("spk2info.pt", "ann", ["One."], "has no voice to compare a new one with"),
    ],
)
def test_what_no_voice_can_be_made_of_ends_with_status_2(
    lacking: str | None,
    recorded: str,
    texts: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """lacking: a file that the model directory does not have."""
    model = shutil.copytree(TINY, tmp_path / "model", ignore=shutil.ignore_patterns(lacking or ""))
    recording = write(tmp_path / f"{recorded}.wav", tone(3.0))
    with pytest.raises(SystemExit, match="2"):
        clone.main(["--model", str(model), "--recording", str(recording), "--text", *texts])
    assert message in capsys.readouterr().err.splitlines()[-1]
