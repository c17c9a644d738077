"""One numbering for text and speech: inputs, results, and refused ids."""

import json
from pathlib import Path

import pytest

from cosyserve.errors import InternalFault, ModelError
from services.llm.generation.request import Prompt
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, VOCABULARY_FILE, ExtendedVocabulary, side_file

PUBLISHED = ExtendedVocabulary(151_663)


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
    vocabulary = ExtendedVocabulary(text_ids)
    assert (vocabulary.tokens, len(vocabulary.added_tokens)) == (text_ids + 6566, 6566)
    assert vocabulary.rows % 128 == 0
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


@pytest.mark.parametrize("facts", [None, "[]", '{"text_ids": 0}', '{"text_ids": "many"}', "other rows"])
def test_another_numbering_is_refused(tmp_path: Path, facts: str | None) -> None:
    path = tmp_path / "vocabulary.json"
    if facts == "other rows":
        PUBLISHED.save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": 158_229}))
    elif facts is not None:
        path.write_text(facts)
    with pytest.raises(ModelError, match=r"no description of an extended vocabulary|numbers its tokens in another way"):
        ExtendedVocabulary.load(path)
