"""The generation of a model directory: both that are published, and a made-up third one."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.model_directory import ModelDirectory

ROOT = Path(__file__).parents[3]
TINY, TINY3 = ROOT / "tests/golden/tiny", ROOT / "tests/golden/tiny3"


def written(folder: Path, name: str, text: str) -> ModelDirectory:
    (folder / name).write_text(text)
    return ModelDirectory(folder)


def test_the_directory_says_which_generation_it_is() -> None:
    assert generation_of(ModelDirectory(TINY)) is COSYVOICE2
    assert generation_of(ModelDirectory(ROOT / "models/demo")) is COSYVOICE2
    assert generation_of(ModelDirectory(TINY3)) is COSYVOICE3


def test_a_third_generation_needs_a_description_only(tmp_path: Path) -> None:
    third = replace(
        COSYVOICE3, name="cosyvoice4", title="CosyVoice4", yaml_names=("cosyvoice4.yaml",), classes=(("llm", "Fourth"),)
    )
    directory = written(tmp_path, "cosyvoice4.yaml", "llm: !new:some.package.Fourth\n")
    assert generation_of(directory, (*GENERATIONS, third)) is third


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_the_yaml_is_the_one_that_the_description_names(tmp_path: Path, generation: Generation) -> None:
    """A copy beside it sorts before it and is not read; of two names the first one counts."""
    name = generation.yaml_names[0]
    for other in (name.replace(".yaml", "-old.yaml"), *generation.yaml_names[1:]):
        (tmp_path / other).write_text("llm: old\n")
    assert written(tmp_path, name, "llm: new\n").yaml_name == name


def test_no_yaml_of_any_generation(tmp_path: Path) -> None:
    expected = f"{tmp_path}: none of cosyvoice2.yaml, cosyvoice.yaml, cosyvoice3.yaml is there"
    with pytest.raises(ModelError, match=expected):
        generation_of(ModelDirectory(tmp_path))


def test_two_generations_in_one_directory(tmp_path: Path) -> None:
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
    shutil.copy(TINY3 / "cosyvoice3.yaml", tmp_path)
    with pytest.raises(
        ModelError, match=r"cosyvoice2.yaml and cosyvoice3.yaml are there, of CosyVoice2 and CosyVoice3"
    ):
        generation_of(ModelDirectory(tmp_path))


@pytest.mark.parametrize(("section", "other"), COSYVOICE2.classes)
def test_a_part_of_another_generation(section: str, other: str, tmp_path: Path) -> None:
    own = dict(COSYVOICE3.classes)[section]
    text = (TINY3 / "cosyvoice3.yaml").read_text()
    assert f".{own}\n" in text
    directory = written(tmp_path, "cosyvoice3.yaml", text.replace(f".{own}\n", f".{other}\n"))
    with pytest.raises(ModelError, match=f"{section} is a {other}, of CosyVoice2; CosyVoice3 has a {own}"):
        generation_of(directory)


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_special_ids_are_rows_behind_the_sounds(generation: Generation) -> None:
    speech = generation.speech
    named = {speech.end, speech.fill, speech.masked_by_reference} | {speech.start, speech.task} - {None}
    assert named <= set(speech.special)
    assert len(speech.special) == speech.rows - speech.tokens


def test_the_marks_of_both_tokenizers() -> None:
    assert len(COSYVOICE2.text_marks) == 19
    assert len(COSYVOICE3.text_marks) == len(set(COSYVOICE3.text_marks)) == 280
    assert COSYVOICE3.text_marks[: len(COSYVOICE2.text_marks)] == COSYVOICE2.text_marks
    # The published tokenizer's own first special token, <|endoftext|>, is 151643.
    assert 151_644 + COSYVOICE3.text_marks.index("<|endofprompt|>") == 151_646
