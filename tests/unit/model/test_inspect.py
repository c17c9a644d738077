"""What `inspect` says of the small real model is what the files hold."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from cosyserve.engines.engine_cache import EngineCache, EngineKey
from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from tests.stacks.up_process import STEP_AUDIO2
from tests.unit.model.steps import DEMO, TINY, damage
from tools.model import inspect
from tools.model.checkpoints.tensor_file import Precision
from tools.model.convert import convert


@pytest.fixture
def cache(tmp_path: Path) -> EngineCache:
    return EngineCache(tmp_path / "engines")


def test_a_model_directory_is_described_in_full(cache: EngineCache) -> None:
    description = inspect.describe(TINY, cache)
    weights = torch.load(TINY / "llm.pt", weights_only=True)
    once = sum(
        tensor.numel() for name, tensor in weights.items() if name != "llm.model.lm_head.weight"
    )  # it shares the embedding's storage
    assert description["llm"]["parameters"] == once
    largest = {"name": "llm_decoder.weight", "shape": [6564, 64]}
    facts = {"values": once, "dtypes": {"float32": len(weights)}, "largest": largest}
    assert facts.items() <= description["files"]["llm.pt"].items()
    magnitude = float(weights["llm_decoder.bias"].abs().max())
    assert description["head_bias"]["largest_magnitude"] == pytest.approx(magnitude)
    vocabulary = {"text_ids": 276, "extended_rows": 6912, "tokenizer": "byte-level BPE"}
    assert vocabulary.items() <= description["vocabulary"].items()
    assert description["sampling"] == {"top_p": 0.8, "top_k": 25, "win_size": 10, "tau_r": 0.1}
    assert description["memory"]["torch_float32"] == {
        "weights_bytes": 4 * description["llm"]["parameters"],
        "bytes_per_position": 2 * 2 * 2 * 16 * 4,
        "longest_sentence_bytes": 8192 * 512,
    }
    assert (description["voices"], description["problems"]) == (["spk_a", "zs_a"], [])
    assert description["bytes"] == sum(path.stat().st_size for path in TINY.rglob("*") if path.is_file())
    assert "6,837" in inspect.render(description)


def test_memory_of_tensorrt_llm_is_that_of_its_checkpoint(cache: EngineCache, tmp_path: Path) -> None:
    convert(TINY, "trtllm-1.x", Precision.BFLOAT16, tmp_path / "made")
    stored = inspect.describe(tmp_path / "made", cache)["files"]["rank0.safetensors"]["bytes_of_tensors"]
    assert inspect.describe(TINY, cache, quick=True)["memory"]["tensorrt_llm_bfloat16"]["weights_bytes"] == stored


def test_engines_of_the_model_are_listed(cache: EngineCache) -> None:
    identity = inspect.describe(DEMO, cache)["identity"]
    assert set(identity) == {"llm", "token2wav"}
    for model in (identity["token2wav"], "another"):
        cache.obtain(
            EngineKey("token2wav.filter", {"model": model, "gpu": "X1"}),
            lambda folder: (folder / "plan").write_bytes(b"1234"),
        )  # type: ignore[arg-type]
    (engine,) = inspect.describe(DEMO, cache)["engines"]
    assert engine.endswith("4 bytes  gpu X1")


def test_what_is_missing_or_damaged_is_a_problem_and_the_rest_is_described(cache: EngineCache, tmp_path: Path) -> None:
    model = Path(shutil.copytree(TINY, tmp_path / "model"))
    (model / "flow.pt").write_bytes(b"no tensors")
    (model / "spk2info.pt").unlink()
    description = inspect.describe(model, cache)
    assert any("flow.pt: not a file of tensors" in problem for problem in description["problems"])
    assert (description["llm"]["layers"], description["voices"]) == (2, [])
    assert "problems" in inspect.render(description)


def test_a_damaged_conversion_is_a_problem(cache: EngineCache, tmp_path: Path) -> None:
    convert(TINY, "hf", Precision.FLOAT32, tmp_path / "made")
    assert inspect.describe(tmp_path / "made", cache)["problems"] == []
    damage(tmp_path / "made" / "model.safetensors")
    assert "its sha256 is not the manifest's" in inspect.describe(tmp_path / "made", cache)["problems"][0]


def test_something_else_is_refused(cache: EngineCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="neither a model directory nor a conversion"):
        inspect.describe(tmp_path, cache)
    assert inspect.main([str(TINY), "--quick", "--json"]) == 0
    assert "identity" not in json.loads(capsys.readouterr().out)


def test_a_directory_of_flow_and_vocoder_alone_is_described(cache: EngineCache, tmp_path: Path) -> None:
    description = inspect.describe(STEP_AUDIO2, cache)
    assert description["kind"] == "flow and vocoder of Step-Audio2, for the speech tokens of CosyVoice2"
    assert description["problems"] == []
    identity = ModelDirectory(STEP_AUDIO2).content_hash(("flow.pt", "hift.pt", "flow.yaml"))
    assert description["identity"] == {"token2wav": identity}
    weights = torch.load(STEP_AUDIO2 / "flow.pt", weights_only=True)
    assert description["token2wav"]["flow"]["parameters"] == sum(tensor.numel() for tensor in weights.values())
    # Ten steps, two rows, three blocks of three heads 16 wide, keys and values; and the encoder's.
    frame = 10 * 2 * 3 * 2 * 3 * 16 * 4 + int(2 * (3 / 2 + 2) * 40 * 4)
    memory = {"state_bytes_per_second": 50 * frame, "most_state_bytes_behind_the_prompt": 150 * frame}
    assert description["memory"] == {"torch_float32": memory}
    wrong = shutil.copytree(STEP_AUDIO2, tmp_path / "wrong", ignore=shutil.ignore_patterns("*.npz"))
    yaml = wrong / "flow.yaml"
    yaml.write_text(yaml.read_text().replace("depth: 3", "depth: 4"))
    assert "missing tensor decoder.estimator.blocks.3" in inspect.describe(wrong, cache)["problems"][0]
