"""ONNX Runtime for a GPU: a wheel without CUDA, and a wheel that would silently compute on the CPU,
are refused.
"""

import warnings
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

from cosyserve.errors import SettingsError
from services.token2wav.engines.onnx_runtime import OnnxEngine
from tests.unit.token2wav.speaking import GOLDEN
from tools.model.graphs.execute import on_cuda
from tools.model.verify import main

CUDA = "CUDAExecutionProvider"
on_a_cpu = pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="this wheel has CUDA")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "negative", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


@on_a_cpu
def test_a_wheel_for_cpus_is_refused(
    model: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model, str(tmp_path / "graph.onnx"))
    with pytest.raises(SettingsError, match=f"has no {CUDA}: pip install onnxruntime-gpu"):
        OnnxEngine("negative", tmp_path / "graph.onnx", torch.device("cuda"))
    assert main([str(GOLDEN), "--runtime", "cuda"]) == 1
    assert f"has no {CUDA}: pip install onnxruntime-gpu" in capsys.readouterr().err


@on_a_cpu
def test_falling_back_to_the_cpu_unasked_is_refused(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, "CPUExecutionProvider"])
    onnx.save(model, str(tmp_path / "graph.onnx"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(SettingsError, match=f"cannot set up its {CUDA}"):
            OnnxEngine("negative", tmp_path / "graph.onnx", torch.device("cuda"))
        with pytest.raises(SettingsError, match=f"cannot set up its {CUDA}"):
            on_cuda()(model)
