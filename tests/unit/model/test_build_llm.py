"""The LLM engine's build: exact arguments, one builder, nothing half made, and plain words where
the program is missing.

`trtllm-build` is a script here that checks its arguments as the real one does and writes what the
real one writes.
"""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from cosyserve.engines.engine_cache import EngineCache
from cosyserve.engines.gpu_facts import visible_gpus
from cosyserve.errors import ModelError, SettingsError
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary
from tests.unit.model.steps import TINY, damage
from tools.model import build, build_llm
from tools.model.build_llm import LONGEST_INPUT, Limits, builder_arguments
from tools.model.checkpoints.tensor_file import Precision
from tools.model.convert import convert

BUILDER = """#!{python}
import argparse, json, os, pathlib, sys
parser = argparse.ArgumentParser()
for name in ("checkpoint_dir", "output_dir", "kv_cache_type", "remove_input_padding", "use_paged_context_fmha",
             "context_fmha", "gemm_plugin", "gpt_attention_plugin"):
    parser.add_argument("--" + name, required=True)
for name in ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "max_beam_width", "workers"):
    parser.add_argument("--" + name, type=int, required=True)
parser.add_argument("--logits_dtype", choices=["float16", "float32"], required=True)
given = parser.parse_args()
config = json.loads((pathlib.Path(given.checkpoint_dir) / "config.json").read_text())
assert config["architecture"] == "Qwen2ForCausalLM" and given.kv_cache_type in ("continuous", "paged", "disabled")
with open({log!r}, "a") as log:
    log.write("built on " + os.environ["CUDA_DEVICE_ORDER"] + " " + os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
print("[TRT-LLM] [I] building")
if {fail}:
    print("[TRT-LLM] [E] out of memory", file=sys.stderr)
    sys.exit(3)
output = pathlib.Path(given.output_dir)
(output / "config.json").write_text(json.dumps({{"build_config": vars(given)}}))
(output / "rank0.engine").write_bytes(b"engine")
"""
NVIDIA_SMI = """#!/bin/sh
echo "NVIDIA H200, 9.0, 570.86.15, 143771, 143000"
echo "NVIDIA L20, 8.9, 570.86.15, 46068, 45000"
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("converted") / "checkpoint"
    convert(TINY, "trtllm-1.x", Precision.BFLOAT16, directory)
    return directory


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the PATH; `log` in it is what was built."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def put_builder(folder: Path, *, fail: bool = False) -> None:
    builder = BUILDER.format(python=sys.executable, log=str(folder / "log"), fail=fail)
    for name, text in (("trtllm-build", builder), ("nvidia-smi", NVIDIA_SMI)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def test_the_arguments_are_exactly_these(tmp_path: Path) -> None:
    arguments = builder_arguments(Path("checkpoint"), Path("engine"), "bfloat16", Limits())
    assert shlex.join(arguments) == (
        "trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 64 --max_input_len 5598 "
        "--max_seq_len 8192 "
        "--max_num_tokens 8192 --max_beam_width 1 --kv_cache_type paged --remove_input_padding enable "
        "--use_paged_context_fmha enable "
        "--context_fmha enable --gemm_plugin bfloat16 --gpt_attention_plugin bfloat16 --logits_dtype float32 --workers "
        "1"
    )
    wide = builder_arguments(Path("c"), Path("e"), "float32", Limits())
    assert wide[wide.index("--context_fmha") + 1] == wide[wide.index("--use_paged_context_fmha") + 1] == "disable"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((0, 8192, 8192), "--max-batch-size is 0"),
        ((1, LONGEST_INPUT, 8192), "--max-seq-len is"),
        ((1, 8192, 100), "--max-num-tokens is 100"),
    ],
)
def test_limits_that_a_request_would_not_fit_are_refused(limits: tuple[int, int, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Limits(*limits)


def test_an_engine_is_built_once_with_what_serving_it_needs(checkpoint: Path, programs: Path, tmp_path: Path) -> None:
    put_builder(programs)
    cache = EngineCache(tmp_path / "engines")
    engine = build_llm.build(checkpoint, cache, Limits(), 0)
    assert sorted(engine.files) == ["config.json", "head_bias.safetensors", "rank0.engine", "vocabulary.json"]
    assert engine.key.facts["gpu"] == "NVIDIA H200"
    assert engine.key.facts["profile"] == f"sentences 64, positions 8192, tokens 8192, input {LONGEST_INPUT}"
    assert ExtendedVocabulary.load(engine.file("vocabulary.json")).text_ids == 276
    assert json.loads(engine.file("config.json").read_text())["build_config"]["max_seq_len"] == 8192
    assert build_llm.build(checkpoint, cache, Limits(), 0) == engine
    assert (programs / "log").read_text() == "built on PCI_BUS_ID 0\n"
    smaller = build_llm.build(checkpoint, cache, Limits(8), 0)
    elsewhere = build_llm.build(checkpoint, cache, Limits(), 1)
    assert len({engine.directory, smaller.directory, elsewhere.directory}) == 3
    assert elsewhere.key.facts["gpu"] == "NVIDIA L20"
    assert (programs / "log").read_text().endswith("built on PCI_BUS_ID 1\n"), (
        "the GPU of the key is the one that builds"
    )


def test_a_build_that_fails_leaves_nothing(checkpoint: Path, programs: Path, tmp_path: Path) -> None:
    put_builder(programs, fail=True)
    cache = EngineCache(tmp_path / "engines")
    with pytest.raises(ModelError, match="trtllm-build ended with status 3"):
        build_llm.build(checkpoint, cache, Limits(), 0)
    assert list(cache.entries()) == []
    put_builder(programs)
    assert build_llm.build(checkpoint, cache, Limits(), 0).files


def test_a_missing_program_and_gpu_are_reported(
    checkpoint: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["llm", str(checkpoint), "--engines", str(tmp_path / "engines")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "cosyserve: trtllm-build is not on the PATH: run this in the image of the Dockerfile's target llm"
    )
    assert "convert MODEL --target hf" in said
    assert visible_gpus() == []
    for number in (0, -1):
        with pytest.raises(SettingsError, match=f"GPU {number} is not there"):
            build_llm.machine_facts(number)


def test_a_dry_run_needs_neither(
    checkpoint: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        build.main(
            ["llm", str(checkpoint), "--dry-run", "--max-batch-size", "16", "--engines", str(tmp_path / "engines")]
        )
        == 0
    )
    output = capsys.readouterr().out
    assert output.startswith(f"trtllm-build --checkpoint_dir {checkpoint} ")
    assert "--max_batch_size 16" in output
    assert not (tmp_path / "engines").exists()


def test_what_is_no_checkpoint_or_damaged_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert(TINY, "hf", Precision.FLOAT32, tmp_path / "hf")
    convert(TINY, "trtllm-0.20", Precision.FLOAT32, tmp_path / "damaged")
    damage(tmp_path / "damaged" / "rank0.safetensors")
    other = "no TensorRT-LLM checkpoint: make one with cosyserve model convert"
    for directory, said in (
        (TINY, other),
        (tmp_path / "hf", other),
        (tmp_path / "damaged", "its sha256 is not the manifest's; convert the model again"),
    ):
        assert build.main(["llm", str(directory), "--dry-run"]) == 1
        assert said in capsys.readouterr().err
