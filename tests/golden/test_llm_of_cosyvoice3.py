"""The speech-token model of CosyVoice3: every array that the reference recorded of the reduced one,
and the names and shapes of the published one.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np

from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.reading import end_of_prompt_id, text_id_count
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import expected_tensors
from services.llm.generation.config import read_config
from tests.golden.test_published_shapes import QWEN
from tools.verify.__main__ import run_stage

GOLDEN = Path(__file__).parent
TINY3 = GOLDEN / "tiny3"
INPUTS = {
    *(
        "system_text_ids",
        "prompt_text_ids",
        "text_ids",
        "text_with_system_ids",
        "prompt_speech_ids",
    ),
    *("forced_speech_ids", "greedy_min_top2_gap", "nucleus_sharp_scale"),
    *("bistream_text_ids", "bistream_prompt_speech_ids", "bistream_limit"),
}


def test_every_array_is_within_tolerance_or_an_input() -> None:
    report = run_stage("llm", TINY3)
    assert report.ok, report.as_table()
    compared = {row.array.removeprefix("llm.npz/").split(" ")[0] for row in report.rows}
    with np.load(TINY3 / "llm.npz") as arrays:
        assert set(arrays.files) - compared == INPUTS


def test_the_ids_of_text_are_counted_as_the_reference_counts_them() -> None:
    recorded = json.loads((TINY3 / "text_frontend.json").read_text(encoding="utf-8"))["tokenizer"]
    assert text_id_count(ModelDirectory(TINY3), COSYVOICE3) == recorded["len"]
    ids = recorded["added_special_ids"]
    assert end_of_prompt_id(ModelDirectory(TINY3), COSYVOICE3) == ids["<|endofprompt|>"]
    assert sorted(ids, key=ids.__getitem__) == list(COSYVOICE3.text_marks)


def test_the_published_tensors_are_those_that_are_asked_for(tmp_path: Path) -> None:
    shutil.copytree(TINY3 / "CosyVoice-BlankEN", tmp_path / "CosyVoice-BlankEN")
    yaml = (TINY3 / "cosyvoice3.yaml").read_text()
    (tmp_path / "cosyvoice3.yaml").write_text(re.sub(r"(llm_(?:in|out)put_size): 48", r"\1: 896", yaml))
    backbone = tmp_path / "CosyVoice-BlankEN" / "config.json"
    backbone.write_text(json.dumps(json.loads(backbone.read_text()) | QWEN))
    published = json.loads((GOLDEN / "published_shapes_cosyvoice3.json").read_text())["llm.pt"]
    del published["llm.model.lm_head.weight"]  # the tied copy, which the loader accepts and drops
    asked = expected_tensors(read_config(ModelDirectory(tmp_path)))
    assert {name: list(shape) for name, shape in asked.items()} == published
