"""The sentences for the benchmark of the field: as many and as long as documented, never others."""

import hashlib
import json
import statistics
from pathlib import Path

from bench.field.sentences import ROWS, sentences, write


def test_there_are_as_many_as_in_the_set_of_the_field_and_none_twice() -> None:
    texts = sentences()
    assert len(texts) == len(set(texts)) == ROWS == 1_088
    lengths = [len(text.split()) for text in texts]
    assert 16 < statistics.mean(lengths) < 17.5
    assert min(lengths) == 8
    assert max(lengths) > 25


def test_figures_of_two_runs_are_of_the_same_sentences(tmp_path: Path) -> None:
    lines = write(tmp_path / "sentences.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len({row["id"] for row in rows}) == ROWS
    assert [row["text"] for row in rows] == sentences()
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest[:16] == "26e7663a89b1c0fc", "figures before this change are of other sentences"
