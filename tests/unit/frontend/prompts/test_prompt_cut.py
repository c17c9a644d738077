"""A cut prompt: the decoder receives less of it, the speech-token model all of it, and the first
hop is audible.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.voices.speaker_file import cut_entry, entry_of, read_voices, voice_of
from services.frontend.voices.voice import FIRST_HOP_TOKENS, LEAST_PROMPT_TOKENS, Voice, cut_of, tokens_before_sound
from tools.model import cut_prompts

DEMO = Path(__file__).parents[4] / "models" / "demo"


def voice(tokens: int) -> Voice:
    mel = np.arange(2 * tokens * 80, dtype="<f4")
    return Voice("v", (1, 2), tuple(range(tokens)), mel.tobytes(), np.ones(192, "<f4").tobytes())


@pytest.mark.parametrize("tokens", range(LEAST_PROMPT_TOKENS + 24, 200, 7))
def test_a_cut_prompt_ends_one_first_hop_before_a_border(tokens: int) -> None:
    left = tokens - cut_of(tokens)
    assert 0 <= cut_of(tokens) <= 24
    assert (left + FIRST_HOP_TOKENS) % 25 == 0
    assert tokens_before_sound(left) == FIRST_HOP_TOKENS + 3
    assert cut_of(left) == 0


def test_two_seconds_stay() -> None:
    assert [cut_of(tokens) for tokens in (0, 1, 49, 50, 54, 56, 74)] == [0, 0, 0, 0, 0, 1, 19]


@pytest.mark.parametrize(
    ("decoder", "wanted"), [(50, 28), (57, 21), (59, 19), (60, 43), (61, 42), (64, 39), (65, 38), (74, 29)]
)
def test_a_first_hop_that_cannot_be_heard_costs_a_second_one(decoder: int, wanted: int) -> None:
    assert tokens_before_sound(decoder) == wanted


def test_the_decoder_is_shown_the_end_and_the_rest_stays() -> None:
    whole, cut = voice(61), voice(61).cut(6)
    assert (whole.decoder_tokens, cut.decoder_tokens) == (61, 55)
    assert cut.prompt_mel == whole.prompt_mel[6 * 2 * 80 * 4 :]
    assert cut.prompt_speech_tokens == whole.prompt_speech_tokens
    assert cut.content_hash != whole.content_hash


def test_more_than_the_prompt_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="61 of 61 prompt tokens cannot be left out"):
        voice(61).cut(61)


@pytest.mark.parametrize("size", [0, 4, 62 * 640])
def test_a_mel_of_other_tokens_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"prompt_mel has \d+ bytes, expected float32 \[2 n, 80\] with n from 1 to 61"):
        Voice("v", (), tuple(range(61)), bytes(size), np.ones(192, "<f4").tobytes())


def test_the_published_layout_holds_a_cut_voice() -> None:
    class NoTokenizer:
        def __len__(self) -> int:
            return 10

        def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
            raise AssertionError

    cut = voice(61).cut(6)
    assert voice_of("v", entry_of(cut), NoTokenizer()) == cut
    assert voice_of("v", cut_entry(entry_of(voice(61))), NoTokenizer()) == cut
    again = cut_entry(entry_of(cut))
    assert voice_of("v", again, NoTokenizer()) == cut


def test_a_file_is_cut_and_says_what_it_gains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spk2info.pt").touch()
    assert cut_prompts.main([str(tmp_path / "nowhere")]) == 1
    torch.save({"a": entry_of(voice(61)), "b": {"embedding": torch.ones(1, 192)}}, tmp_path / "spk2info.pt")
    assert cut_prompts.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "a: 23 speech tokens before the first audible sample instead of 42\n"
    result = torch.load(tmp_path / "spk2info.pt", weights_only=True)
    assert (result["a"]["flow_prompt_speech_token"].shape, result["a"]["llm_prompt_speech_token"].shape) == (
        (1, 55),
        (1, 61),
    )
    assert list(result["b"]) == ["embedding"]


def test_the_bundled_voices_are_cut() -> None:
    directory = ModelDirectory(DEMO)
    for each in read_voices(directory, read_tokenizer(directory)):
        assert tokens_before_sound(each.decoder_tokens) == FIRST_HOP_TOKENS + 3
        assert cut_of(each.decoder_tokens) == 0
