"""How many speech tokens a recording that is converted gives, and which directory says so."""

from pathlib import Path

import pytest
import torch

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.features.whisper_mel import HOP, whisper_log_mel
from services.frontend.prompts.finer_reading import FILE, conversion_step, step_within
from services.frontend.prompts.prompt_reader import PromptReader
from tests.stacks.up_process import DEMO

RATE = 16_000


@pytest.mark.parametrize("content", [None, "", " \n", "null", "{}", '{"conversion_frame_step": null}'])
def test_a_directory_that_says_nothing_is_read_as_the_reference_does(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    assert conversion_step(ModelDirectory(tmp_path)) == HOP


def test_the_directory_says_how_finely(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"conversion_frame_step": 128}')
    assert conversion_step(ModelDirectory(tmp_path)) == 128


@pytest.mark.parametrize("value", ["79", "161", "true", '"90"', "NaN"])
def test_other_steps_are_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / FILE).write_text(f'{{"conversion_frame_step": {value}}}')
    with pytest.raises(ModelError, match=r"conversion_frame_step is .*, must be a whole number from 80 to 160"):
        conversion_step(ModelDirectory(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[110]", "expected a mapping"),
        (b'{"frame_step": 110}', "unknown key 'frame_step'"),
        (b"{", "not a readable JSON file"),
        (b"\xff", "not a readable JSON file"),
        (b"[" * 4000, "not a readable JSON file"),
        (b" " * 5000, "larger than 4096 bytes"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ModelError, match=f"{FILE}: {said}"):
        conversion_step(ModelDirectory(tmp_path))


@pytest.mark.parametrize(
    ("most_rate", "step"),
    [(0.0, 160), (0.9995, 160), (1.0, 160), (1.2, 134), (1.4, 115), (1.4546, 110), (1.999, 110), (float("nan"), 160)],
)
def test_never_more_tokens_than_the_caller_can_use(most_rate: float, step: int) -> None:
    assert step_within(110, most_rate) == step
    assert HOP / step <= max(1.0, most_rate)


def test_frames_closer_together_are_those_of_the_same_sound() -> None:
    wave = torch.sin(torch.arange(RATE) * 0.3)[None] * torch.linspace(0.01, 1, RATE)
    fine, coarse = whisper_log_mel(wave, HOP // 2), whisper_log_mel(wave)
    assert fine.shape == (1, 128, 200)
    torch.testing.assert_close(fine[..., ::2], coarse, rtol=0, atol=1e-3)


def test_a_conversion_is_read_more_finely_and_a_prompt_is_not() -> None:
    reader = PromptReader(ModelDirectory(DEMO))
    step = conversion_step(ModelDirectory(DEMO))
    assert step < HOP
    wave = 0.3 * torch.sin(torch.arange(2 * RATE) * 0.1) * torch.sin(torch.arange(2 * RATE) * 0.001)
    fine, coarse = reader.speech_tokens(wave, RATE, 2.0), reader.speech_tokens(wave, RATE)
    assert (fine.rate, coarse.rate) == (HOP / step, 1.0)
    assert (len(fine.tokens), len(coarse.tokens)) == (-(-(2 * RATE // step) // 4), 50)
    assert coarse.tokens == reader.read("me", wave, RATE, []).prompt_speech_tokens
    assert reader.speech_tokens(wave, RATE, 2.0) == fine
