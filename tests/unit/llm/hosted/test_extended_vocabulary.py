"""One numbering for text and speech: inputs, results, and refused ids."""

import json
import pkgutil
import shutil
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cosyserve.errors import InternalFault, ModelError, SettingsError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import GENERATIONS
from services.llm.generation.request import Prompt
from services.llm.hosted.extended_vocabulary import (
    HEAD_BIAS_FILE,
    PROMPT_EMBEDDINGS_FILE,
    VOCABULARY_FILE,
    ExtendedVocabulary,
    PromptEmbeddings,
    side_file,
)
from services.llm.hosted.vllm import vllm_plugin
from services.llm.loading import load_chosen
from tests.unit.llm.hosted import fake_vllm
from tests.unit.llm.hosted.hosts import library
from tests.unit.llm.tiny_llm import model, settings

PUBLISHED = ExtendedVocabulary(151_663, COSYVOICE2.speech)


def test_a_sentence_is_laid_out_as_the_reference_lays_it_out() -> None:
    ids = PUBLISHED.sequence(Prompt((1, 2), (0, 6560)), (3,))
    assert ids == [158_227, 1, 2, 3, 158_228, 151_663, 158_223]
    assert [PUBLISHED.added_tokens[index - PUBLISHED.text_ids] for index in (ids[0], ids[4], ids[6])] == [
        "<|sos|>",
        "<|task_id|>",
        "<|s_6560|>",
    ]


def test_made_ids_are_speech_ids_or_a_fault() -> None:
    assert [PUBLISHED.speech_id(index) for index in (151_663, 158_223, *PUBLISHED.stops)] == [0, 6560, 6561, 6562, 6563]
    for index in (0, 151_662, 158_227, 158_335):
        with pytest.raises(InternalFault, match=f"gave id {index}, which is no speech token"):
            PUBLISHED.speech_id(index)


@pytest.mark.parametrize("text_ids", [1, 80, 276, 151_663])
def test_every_id_has_one_meaning(text_ids: int) -> None:
    vocabulary = ExtendedVocabulary(text_ids, COSYVOICE2.speech)
    assert (vocabulary.tokens, len(vocabulary.added_tokens), vocabulary.rows % 128) == (text_ids + 6566, 6566, 0)
    assert 0 <= vocabulary.rows - vocabulary.tokens < 128
    assert len({*vocabulary.stops, vocabulary.start, vocabulary.task}) == 5


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / VOCABULARY_FILE
    path.parent.mkdir()
    PUBLISHED.save(path)
    assert ExtendedVocabulary.load(side_file(tmp_path, VOCABULARY_FILE)) == PUBLISHED
    path.rename(tmp_path / "vocabulary.json")
    assert ExtendedVocabulary.load(side_file(tmp_path, VOCABULARY_FILE)) == PUBLISHED
    with pytest.raises(ModelError, match=r"head_bias\.safetensors: missing; without it"):
        side_file(tmp_path, HEAD_BIAS_FILE)


def test_a_vocabulary_is_what_its_file_describes_not_one_with_as_many_rows(tmp_path: Path) -> None:
    """So a generation needs no row of its own to be told from the others."""
    other = replace(COSYVOICE2.speech, end=6562, fill=6561, head_bias=False)
    for speech in (other, COSYVOICE2.speech, COSYVOICE3.speech):
        ExtendedVocabulary(276, speech).save(tmp_path / "vocabulary.json")
        assert ExtendedVocabulary.load(tmp_path / "vocabulary.json").speech == speech


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_a_file_of_an_earlier_release_has_no_description(tmp_path: Path, generation: Generation) -> None:
    path = tmp_path / "vocabulary.json"
    ExtendedVocabulary(276, generation.speech).save(path)
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "speech"})
    )
    assert ExtendedVocabulary.load(path).speech == generation.speech


@pytest.mark.parametrize("facts", [None, "[]", '{"text_ids": 0}', '{"text_ids": "many"}', "other rows", "no names"])
def test_another_numbering_is_refused(tmp_path: Path, facts: str | None) -> None:
    path = tmp_path / "vocabulary.json"
    if facts == "other rows":
        PUBLISHED.save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": 158_229}))
    elif facts == "no names":
        PUBLISHED.save(path)
        stored = json.loads(path.read_text())
        del stored["speech"]["special_names"]
        path.write_text(json.dumps(stored))
    elif facts is not None:
        path.write_text(facts)
    with pytest.raises(ModelError, match=r"no description of an extended vocabulary|numbers its tokens in another way"):
        ExtendedVocabulary.load(path)


ROOT = Path(__file__).parents[4]


@pytest.fixture
def export(converted: Path) -> Path:
    return converted.with_name("vllm")


def vocabulary_of(export: Path) -> ExtendedVocabulary:
    return ExtendedVocabulary.load(export / VOCABULARY_FILE)


def test_rows_are_those_of_the_model(export: Path) -> None:
    vocabulary, reference = vocabulary_of(export), model()
    ids = [vocabulary.start, 3, vocabulary.text_ids - 1, vocabulary.task, vocabulary.text_ids, vocabulary.end, 3]
    wanted = [(0, 0), (1, 3), (1, vocabulary.text_ids - 1), (0, 1), (2, 0), (2, 6561), (1, 3)]
    rows = PromptEmbeddings.open(export, vocabulary).rows(ids)
    assert torch.equal(rows, torch.stack([reference.tables[table][row] for table, row in wanted]))


def test_tables_that_are_missing_or_of_another_size_are_said(export: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(export, tmp_path / "broken"))
    tables = load_file(broken / PROMPT_EMBEDDINGS_FILE)
    save_file({**tables, "text": tables["text"][1:].clone()}, broken / PROMPT_EMBEDDINGS_FILE)
    with pytest.raises(ModelError, match="are needed; convert the model again"):
        PromptEmbeddings.open(broken, vocabulary_of(export))
    (broken / PROMPT_EMBEDDINGS_FILE).unlink()
    with pytest.raises(ModelError, match="prompts cannot be looked up"):
        PromptEmbeddings.open(broken, vocabulary_of(export))


def test_the_entry_point_of_the_distribution_is_the_plugin() -> None:
    project_file = tomllib.loads((ROOT / "packages" / "server" / "pyproject.toml").read_text(encoding="utf-8"))
    points = project_file["project"]["entry-points"][vllm_plugin.GROUP]
    assert points == {vllm_plugin.NAME: "services.llm.hosted.vllm.vllm_plugin:register"}
    assert pkgutil.resolve_name(points[vllm_plugin.NAME]) is vllm_plugin.register


def test_the_model_is_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_vllm.ModelRegistry, "models", {})
    with library("vllm", monkeypatch):
        vllm_plugin.register()
        (name,) = fake_vllm.ModelRegistry.models.values()
        assert issubclass(pkgutil.resolve_name(name), fake_vllm.Qwen2ForCausalLM)


@pytest.mark.parametrize(
    ("points", "chosen", "message"),
    [
        ([], None, "no entry point vllm.general_plugins"),
        ([EntryPoint("other", "other:register", "")], None, "no entry point"),
        (
            [EntryPoint("cosyserve", "services.llm.hosted.vllm.vllm_plugin:register", "")],
            "lora,metrics",
            "VLLM_PLUGINS is 'lora,metrics'",
        ),
    ],
)
def test_a_plugin_that_vllm_will_not_call_is_said(
    points: list[EntryPoint], chosen: str | None, message: str, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library("vllm", monkeypatch):
        monkeypatch.setattr(vllm_plugin, "entry_points", lambda group: points)
        if chosen is not None:
            monkeypatch.setenv("VLLM_PLUGINS", chosen)
        with pytest.raises(SettingsError, match=message):
            load_chosen(settings(backend="vllm", device="auto", converted=export))
