"""What each machine can run, what it lacks, and how figures are called."""

import pytest

from cosyserve.host.hardware import Machine
from cosyserve.host.starting.configurations import BY_NAME, CONFIGURATIONS, rating
from cosyserve.settings import load
from services.llm.settings import LlmSettings
from services.token2wav.__main__ import Token2WavSettings
from services.token2wav.decoders.backend import BACKENDS
from tests.unit.cosyserve.host.fake_gpu import gpu, machine

TENSORRT = {"tensorrt__cu12": "10.13.0.35"}
LIBRARIES = {"triton": "3.7.1", "onnxruntime": "1.31.1"}


@pytest.mark.parametrize(
    ("found", "runs"),
    [
        (machine(onnxruntime="1.31.1"), ["onnx", "cpu"]),
        (machine(), ["cpu"]),
        (machine(gpu(1_024), **LIBRARIES, **TENSORRT), ["onnx", "cpu"]),
        (machine(gpu(capability=(7, 5)), **LIBRARIES, **TENSORRT), ["fp16", "trt+fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES), ["compile+fp16", "fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, **TENSORRT), ["compile+fp16", "fp16", "trt+fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, compiler=None), ["fp16", "onnx", "cpu"]),
        (machine(gpu(), triton="3.3.0", tensorrt="8.6.1"), ["fp16", "cpu"]),
        (machine(gpu(), **LIBRARIES, tensorrt="11.4.0.106"), ["compile+fp16", "fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, tensorrt_llm="1.2.1"), ["compile+fp16", "fp16", "trtllm+fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, vllm="0.33.0"), ["compile+fp16", "fp16", "vllm+fp16", "onnx", "cpu"]),
    ],
)
def test_what_runs_where(found: Machine, runs: list[str]) -> None:
    assert [configuration.name for configuration in CONFIGURATIONS if configuration.lacks(found) is None] == runs


def test_what_is_missing_is_said_with_what_to_install() -> None:
    assert "pip install tensorrt-cu13==" in str(BY_NAME["trt+fp16"].lacks(machine(gpu())))
    assert "triton 3.3.0 is not supported" in str(BY_NAME["compile+fp16"].lacks(machine(gpu(), triton="3.3.0")))
    assert "older than Ampere" in str(BY_NAME["compile+fp16"].lacks(machine(gpu(capability=(7, 5)), triton="3.7.1")))
    assert BY_NAME["fp16"].lacks(machine()) == "there is no NVIDIA GPU"


@pytest.mark.parametrize("name", list(BY_NAME))
@pytest.mark.parametrize("memory", [3_072, 8_188, 81_559])
def test_the_services_take_every_setting(name: str, memory: int) -> None:
    configuration = BY_NAME[name]
    found = machine(gpu(memory), **LIBRARIES, **TENSORRT)
    environ = configuration.settings(found, 2_500 << 20).environ | {
        f"COSYSERVE_{service}_{variable}": value
        for service in ("LLM", "TOKEN2WAV")
        for variable, value in (
            ("LISTEN", "127.0.0.1:0"),
            ("MODEL", "models/demo"),
            ("BACKEND", configuration.backends[service.lower()]),
        )
    }
    llm, flow = load(LlmSettings, "COSYSERVE_LLM_", environ), load(Token2WavSettings, "COSYSERVE_TOKEN2WAV_", environ)
    assert flow.backend in BACKENDS
    assert flow.device == ("cuda" if configuration.on_gpu else "cpu")
    assert llm.device == ("cuda" if configuration.on_gpu and memory > 4_000 else "cpu")


@pytest.mark.parametrize(
    ("factor", "word"),
    [
        (0.1, "very fast"),
        (0.2999, "very fast"),
        (0.3, "fast"),
        (0.69, "fast"),
        (0.7, "acceptable"),
        (1.0, "acceptable"),
        (1.01, "slow"),
    ],
)
def test_ratings(factor: float, word: str) -> None:
    assert rating(factor) == word
