"""Voices: the layouts of spk2info.pt, refused files, and the set of presets."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyserve.errors import InvalidRequest, ModelError, NotFound
from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.bpe import TextTokenizer
from services.frontend.voices.preset_voices import PresetVoices
from services.frontend.voices.speaker_file import read_voices
from services.frontend.voices.voice import Voice

TINY = Path(__file__).parents[3] / "golden" / "tiny"
TOKENIZER = TextTokenizer(ModelDirectory(TINY))
VECTOR = torch.linspace(-1.0, 1.0, 192)[None]


def zero_shot(**changes: Any) -> dict[str, Any]:
    tokens = torch.arange(10, dtype=torch.int32)[None]
    entry = {
        "prompt_text": torch.tensor([[7, 8, 9]], dtype=torch.int32),
        "llm_prompt_speech_token": tokens,
        "flow_prompt_speech_token": tokens,
        "prompt_speech_feat": torch.ones(1, 20, 80),
        "llm_embedding": VECTOR,
        "flow_embedding": VECTOR,
    }
    entry.update(changes)
    return {field: value for field, value in entry.items() if value is not None}


def read(path: Path, speakers: Any) -> list[Voice]:
    torch.save(speakers, path / "spk2info.pt")
    return read_voices(ModelDirectory(path), TOKENIZER)


def voice(name: str) -> Voice:
    return Voice(name, (), (), b"", VECTOR.numpy().tobytes())


def test_the_three_layouts(tmp_path: Path) -> None:
    triton = {
        "prompt_text": "hi<|endofprompt|>",
        "speech_token": torch.arange(10)[None],
        "speech_feat": torch.ones(1, 20, 80),
        "embedding": VECTOR,
    }
    first, second, third = read(tmp_path, {"zs": zero_shot(), "001": triton, "sft": {"embedding": VECTOR}})
    assert (first.id, second.id, third.id) == ("001", "sft", "zs")
    assert first.prompt_text_ids == (104, 105, 259)
    assert third.prompt_text_ids == (7, 8, 9)
    assert first.prompt_speech_tokens == third.prompt_speech_tokens == tuple(range(10))
    assert second.prompt_speech_tokens == second.prompt_text_ids == ()
    assert second.prompt_mel == b""
    assert first.speaker_embedding == second.speaker_embedding == VECTOR.numpy().tobytes()
    assert third.prompt_seconds == 0.4
    assert len({first.content_hash, second.content_hash, third.content_hash}) == 3


def test_the_content_hash_names_content_and_not_the_id() -> None:
    assert voice("a").content_hash == voice("b").content_hash
    assert len(voice("a").content_hash) == 32
    other = Voice("a", (), (), b"", (VECTOR + 1).numpy().tobytes())
    assert other.content_hash != voice("a").content_hash


@pytest.mark.parametrize(("frames", "tokens", "length"), [(20, 12, 10), (21, 10, 10), (26, 10, 10), (5, 10, 2)])
def test_prompts_are_trimmed_two_to_one(tmp_path: Path, frames: int, tokens: int, length: int) -> None:
    ids = torch.arange(tokens)[None]
    entry = zero_shot(
        llm_prompt_speech_token=ids,
        flow_prompt_speech_token=ids,
        prompt_speech_feat=torch.arange(frames * 80.0).reshape(1, frames, 80),
    )
    (only,) = read(tmp_path, {"v": entry})
    assert only.prompt_speech_tokens == tuple(range(length))
    assert np.array_equal(np.frombuffer(only.prompt_mel, "<f4"), np.arange(2 * length * 80.0))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "voice 'v': field flow_embedding or embedding is missing"),
        ({"embedding": torch.zeros(1, 191)}, r"field embedding has shape \[1, 191\], expected \[1, 192\]"),
        ({"embedding": torch.full((1, 192), float("nan"))}, "field embedding is not finite"),
        (
            {"embedding": torch.zeros(1, 192, dtype=torch.int32)},
            "field embedding is a torch.int32 tensor, expected a floating",
        ),
        ({"embedding": "loud"}, "field embedding is a str"),
        (zero_shot(prompt_text=None), "field prompt_text is missing"),
        (zero_shot(prompt_text=torch.tensor([[276]])), "field prompt_text holds 276, allowed 0 to 275"),
        (zero_shot(prompt_speech_feat=None), "field prompt_speech_feat or speech_feat is missing"),
        (zero_shot(prompt_speech_feat=torch.ones(1, 20, 40)), r"field prompt_speech_feat has shape \[1, 20, 40\]"),
        (zero_shot(prompt_speech_feat=torch.ones(1, 1, 80)), "less than one token of prompt"),
        (
            zero_shot(llm_prompt_speech_token=torch.zeros(1, 10, dtype=torch.int32)),
            "neither the beginning nor the end of llm_prompt_speech_token",
        ),
        (zero_shot(flow_prompt_speech_token=torch.zeros(2, 5, dtype=torch.int32)), r"has shape \[2, 5\]"),
        (
            zero_shot(flow_prompt_speech_token=torch.full((1, 10), 6561), llm_prompt_speech_token=None),
            "prompt_speech_tokens holds 6561 at place 0, allowed 0 to 6560",
        ),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read(tmp_path, {"v": entry})
    assert "spk2info.pt: voice 'v'" in str(caught.value)


@pytest.mark.parametrize(
    ("speakers", "message"), [([1], "holds a list"), ({3: {}}, "entry 3"), ({"v": 1}, "entry 'v'")]
)
def test_a_wrong_container_is_refused(tmp_path: Path, speakers: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(tmp_path, speakers)


class Hostile:
    """Unpickling this would create a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("hostile-was-here"),))


def test_a_hostile_or_broken_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (pickle.dumps({"v": Hostile()}), b"not a pickle", b""):
        (tmp_path / "spk2info.pt").write_bytes(content)
        with pytest.raises(ModelError, match="not a file of plain tensors"):
            read_voices(ModelDirectory(tmp_path), TOKENIZER)
    assert not (tmp_path / "hostile-was-here").exists()


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    shutil.copy(TINY / "spk2info.pt", tmp_path)
    content = (tmp_path / "spk2info.pt").read_bytes()
    (tmp_path / "spk2info.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"spk2info\.pt: not a file of plain tensors"):
        read_voices(ModelDirectory(tmp_path), TOKENIZER)


def test_no_file_means_no_voices(tmp_path: Path) -> None:
    registry = PresetVoices(read_voices(ModelDirectory(tmp_path), TOKENIZER))
    assert registry.all() == []
    with pytest.raises(NotFound, match="no default; this server has no voices"):
        registry.get("")


def test_the_default_is_the_one_set_or_the_first() -> None:
    voices = [voice("b"), voice("a"), voice("c")]
    assert PresetVoices(voices).get("").id == "a"
    assert PresetVoices(voices, "c").get("").id == "c"
    with pytest.raises(ValueError, match="no voice 'd' to be the default; known: a, b, c"):
        PresetVoices(voices, "d")


def test_an_unknown_voice_is_answered_with_at_most_ten_names() -> None:
    registry = PresetVoices([voice(f"v{number:02}") for number in range(12)])
    with pytest.raises(NotFound, match=r"there is no voice 'x'; known: v00, .*, v09 and 2 more$"):
        registry.get("x")
    with pytest.raises(InvalidRequest, match="129 characters, allowed 1 to 128"):
        registry.get("x" * 129)
