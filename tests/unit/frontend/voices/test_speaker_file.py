"""Voices: the layouts of spk2info.pt, refused files, the set of presets; and a cut prompt: the
decoder receives less of it, the speech-token model all of it, and the first hop is audible.
"""

import pickle
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch

from cosyserve.errors import InvalidRequest, ModelError, NotFound
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import Generation
from cosyserve.generations.prompt_cut import LEAST_PROMPT_TOKENS, audible_first_hop
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.tokenizers.bpe import TextTokenizer
from services.frontend.voices.preset_voices import PresetVoices
from services.frontend.voices.speaker_file import cut_entry, entry_of, read_voices, voice_of
from services.frontend.voices.voice import Voice, cut_of, tokens_before_sound
from tests.stacks.up_process import DEMO, TINY, TINY3
from tools.model import cut_prompts

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
    return read_from(path)


def read_from(path: Path) -> list[Voice]:
    """The voices of a directory that only lacks the file that describes it."""
    shutil.copy(TINY / "cosyvoice2.yaml", path)
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
    assert (first.prompt_text_ids, third.prompt_text_ids) == ((104, 105, 259), (7, 8, 9))
    assert first.prompt_speech_tokens == third.prompt_speech_tokens == tuple(range(10))
    assert second.prompt_speech_tokens == second.prompt_text_ids == ()
    assert second.prompt_mel == b""
    assert first.speaker_embedding == second.speaker_embedding == VECTOR.numpy().tobytes()
    assert third.prompt_seconds == 0.4
    assert len({first.content_hash, second.content_hash, third.content_hash}) == 3


def test_the_content_hash_names_content_and_not_the_id() -> None:
    assert voice("a").content_hash == voice("b").content_hash
    assert len(voice("a").content_hash) == 32
    assert Voice("a", (), (), b"", (VECTOR + 1).numpy().tobytes()).content_hash != voice("a").content_hash


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
        ({}, "field flow_embedding or embedding is missing"),
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
    with pytest.raises(ModelError, match=rf"spk2info\.pt: voice 'v': .*{message}"):
        read(tmp_path, {"v": entry})


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
    whole = (TINY / "spk2info.pt").read_bytes()
    for content in (pickle.dumps({"v": Hostile()}), b"not a pickle", b"", whole[: len(whole) // 2]):
        (tmp_path / "spk2info.pt").write_bytes(content)
        with pytest.raises(ModelError, match=r"spk2info\.pt: not a file of plain tensors"):
            read_from(tmp_path)
    assert not (tmp_path / "hostile-was-here").exists()


def test_no_file_means_no_voices(tmp_path: Path) -> None:
    assert read_from(tmp_path) == []


def test_the_default_is_the_one_set_or_the_first() -> None:
    voices = [voice("b"), voice("a"), voice("c")]
    assert (PresetVoices(voices).get("").id, PresetVoices(voices, "c").get("").id) == ("a", "c")
    with pytest.raises(ValueError, match="no voice 'd' to be the default; known: a, b, c"):
        PresetVoices(voices, "d")


@pytest.mark.parametrize(
    ("count", "asked", "error", "message"),
    [
        (0, "", NotFound, "no default; this server has no voices"),
        # At most ten names.
        (12, "x", NotFound, r"there is no voice 'x'; known: v00, .*, v09 and 2 more$"),
        (12, "x" * 129, InvalidRequest, "129 characters, allowed 1 to 128"),
    ],
)
def test_an_unknown_voice_is_answered_with_the_known_names(
    count: int, asked: str, error: type[Exception], message: str
) -> None:
    registry = PresetVoices([voice(f"v{number:02}") for number in range(count)])
    assert len(registry.all()) == count
    with pytest.raises(error, match=message):
        registry.get(asked)


def prompted(tokens: int) -> Voice:
    mel = np.arange(2 * tokens * 80, dtype="<f4")
    return Voice("v", (1, 2), tuple(range(tokens)), mel.tobytes(), np.ones(192, "<f4").tobytes())


@pytest.mark.parametrize(("generation", "first_hop"), [(COSYVOICE2, 20), (COSYVOICE3, 12)])
@pytest.mark.parametrize("tokens", range(LEAST_PROMPT_TOKENS + 24, 200, 7))
def test_a_cut_prompt_ends_one_first_hop_before_a_border(tokens: int, generation: Generation, first_hop: int) -> None:
    assert audible_first_hop(generation) == first_hop
    left = tokens - cut_of(tokens, generation)
    assert tokens - 24 <= left <= tokens
    assert (left + first_hop) % 25 == 0
    assert (tokens_before_sound(left, generation), cut_of(left, generation)) == (first_hop + 3, 0)


def test_two_seconds_stay() -> None:
    assert [cut_of(tokens, COSYVOICE2) for tokens in (0, 1, 49, 50, 54, 56, 74)] == [0, 0, 0, 0, 0, 1, 19]


@pytest.mark.parametrize(
    ("decoder", "wanted"), [(50, 28), (57, 21), (59, 19), (60, 43), (61, 42), (64, 39), (65, 38), (74, 29)]
)
def test_a_first_hop_that_cannot_be_heard_costs_a_second_one(decoder: int, wanted: int) -> None:
    assert tokens_before_sound(decoder, COSYVOICE2) == wanted


@pytest.mark.parametrize(("decoder", "wanted"), [(50, 28), (60, 18), (67, 11), (68, 35), (74, 29)])
def test_of_cosyvoice3_a_shorter_one_is_heard(decoder: int, wanted: int) -> None:
    assert tokens_before_sound(decoder, COSYVOICE3) == wanted


def test_the_decoder_is_shown_the_end_and_the_rest_stays() -> None:
    whole, cut = prompted(61), prompted(61).cut(6)
    assert (whole.decoder_tokens, cut.decoder_tokens) == (61, 55)
    assert cut.prompt_mel == whole.prompt_mel[6 * 2 * 80 * 4 :]
    assert cut.prompt_speech_tokens == whole.prompt_speech_tokens
    assert cut.content_hash != whole.content_hash


def test_more_than_the_prompt_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="61 of 61 prompt tokens cannot be left out"):
        prompted(61).cut(61)


@pytest.mark.parametrize("size", [0, 4, 62 * 640])
def test_a_mel_of_other_tokens_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"prompt_mel has \d+ bytes, expected float32 \[2 n, 80\] with n from 1 to 61"):
        Voice("v", (), tuple(range(61)), bytes(size), np.ones(192, "<f4").tobytes())


def test_the_published_layout_holds_a_cut_voice() -> None:
    cut, tokenizer = prompted(61).cut(6), MagicMock(__len__=Mock(return_value=10))
    for entry in (entry_of(cut), cut_entry(entry_of(prompted(61)), COSYVOICE2), cut_entry(entry_of(cut), COSYVOICE2)):
        assert voice_of("v", entry, tokenizer) == cut
    tokenizer.encode.assert_not_called()


def test_a_file_is_cut_and_says_what_it_gains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spk2info.pt").touch()
    assert cut_prompts.main([str(tmp_path / "nowhere")]) == 1
    torch.save({"a": entry_of(prompted(61)), "b": {"embedding": torch.ones(1, 192)}}, tmp_path / "spk2info.pt")
    assert cut_prompts.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "a: 23 speech tokens before the first audible sample instead of 42\n"
    result = torch.load(tmp_path / "spk2info.pt", weights_only=True)
    assert (result["a"]["flow_prompt_speech_token"].shape, result["a"]["llm_prompt_speech_token"].shape) == (
        (1, 55),
        (1, 61),
    )
    assert list(result["b"]) == ["embedding"]


def test_a_file_of_cosyvoice3_is_cut_for_its_own_hop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(TINY3 / "cosyvoice3.yaml", tmp_path)
    torch.save({"a": entry_of(prompted(74))}, tmp_path / "spk2info.pt")
    assert cut_prompts.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "a: 15 speech tokens before the first audible sample instead of 29\n"
    shutil.copy(DEMO / "cosyvoice2.yaml", tmp_path)
    assert cut_prompts.main([str(tmp_path)]) == 1
    assert "holds one generation" in capsys.readouterr().err


def test_the_bundled_voices_are_cut() -> None:
    directory = ModelDirectory(DEMO)
    for each in read_voices(directory, read_tokenizer(directory)):
        assert tokens_before_sound(each.decoder_tokens, COSYVOICE2) == audible_first_hop(COSYVOICE2) + 3
        assert cut_of(each.decoder_tokens, COSYVOICE2) == 0
