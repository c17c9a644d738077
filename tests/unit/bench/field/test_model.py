"""The model directory of random weights of the benchmark of the field."""

from pathlib import Path

from bench.field.model import PROMPT_TOKENS, VOICES, identity, made, voices
from bench.field.sentences import sentences
from bench.load.engines import text_ids
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import TOKENS_PER_SECOND
from services.llm.generation.config import read_config


def test_sentences_are_as_long_as_those_of_the_field(tmp_path: Path) -> None:
    model = made(tmp_path / "model", "cosyvoice2", "bundled")
    lengths = read_config(ModelDirectory(model)).lengths
    seconds = [lengths.longest(len(ids)) / TOKENS_PER_SECOND for ids in text_ids(model, sentences()[:40])]
    assert 4.2 < sum(seconds) / len(seconds) < 4.8
    assert voices(model) == tuple(VOICES)
    assert len({tokens % 25 for tokens in PROMPT_TOKENS}) == 5
    assert identity(model).startswith("random weights: cosyvoice2 bundled ")
    before = (model / "llm.pt").stat().st_mtime_ns
    assert made(model, "cosyvoice2", "bundled") == model
    assert (model / "llm.pt").stat().st_mtime_ns == before


def test_a_directory_is_told_by_its_content() -> None:
    demo = Path("models/demo")
    assert identity(demo).startswith("demo: ")
    assert 1 <= len(voices(demo)) <= 5
