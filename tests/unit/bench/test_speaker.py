"""The voice with which the engines alone are measured: the first one that has a prompt."""

from pathlib import Path

import pytest
import torch

from bench.load.engines import Speaker
from cosyserve.errors import ModelError

VECTOR = {"embedding": torch.zeros(1, 192)}
TRITON = {
    "prompt_text": "one two",
    "speech_token": torch.tensor([[1, 2]]),
    "speech_feat": torch.zeros(1, 4, 80),
    **VECTOR,
}
PROMPTED = {
    "prompt_text": torch.tensor([[5, 6]]),
    "llm_prompt_speech_token": torch.tensor([[1, 2]]),
    "flow_prompt_speech_token": torch.tensor([[1, 2]]),
    "prompt_speech_feat": torch.zeros(1, 4, 80),
    "flow_embedding": torch.zeros(1, 192),
}


def written(directory: Path, **voices: object) -> Path:
    torch.save(voices, directory / "spk2info.pt")
    return directory


def test_voices_without_a_prompt_are_passed_over(tmp_path: Path) -> None:
    speaker = Speaker.first_of(written(tmp_path, anna=VECTOR, bert=TRITON, carl=PROMPTED, dora=VECTOR))
    assert (speaker.prompt.text_ids, speaker.prompt.speech_tokens) == ((5, 6), (1, 2))
    assert speaker.voice.mel.shape == (4, 80)


@pytest.mark.parametrize("voices", [None, {}, {"anna": VECTOR}, {"anna": VECTOR, "bert": TRITON}])
def test_without_one_the_file_and_the_fields_are_named(voices: dict[str, object] | None, tmp_path: Path) -> None:
    if voices is not None:
        written(tmp_path, **voices)
    with pytest.raises(ModelError, match=r"spk2info\.pt: no voice has prompt_text, llm_prompt_speech_token"):
        Speaker.first_of(tmp_path)
