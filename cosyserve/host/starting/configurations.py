"""Configurations of the two engines on one machine, and what each lacks here: our own engines
first, which have been measured, the fastest first, then those of other libraries.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cosyserve.host.hardware import (
    AMPERE,
    SUPPORTED_LIBRARIES,
    TIERS,
    Machine,
    Recommendation,
    format_version,
    on_cpu,
    parse_version,
    recommended,
)

_LIBRARIES = {library.name: library for library in SUPPORTED_LIBRARIES}
_LLM, _FLOW = "COSYSERVE_LLM_", "COSYSERVE_TOKEN2WAV_"
_HALF = {f"{_LLM}GPU_PRECISION": "bfloat16", f"{_FLOW}GPU_PRECISION": "bfloat16"}


@dataclass(frozen=True)
class Configuration:
    """One way to run the two engines."""

    name: str
    what: str
    """In words."""
    backends: dict[str, str]
    """Of llm and token2wav."""
    environ: dict[str, str]
    """Variables that define it, without devices, which depend on the memory of the GPU."""
    lacks: Callable[[Machine], str | None]
    """Why a machine cannot run it, None if it can, as far as known without starting it."""
    needs_engines: bool = False
    """Whether engines must be built before it starts."""
    on_gpu: bool = True
    automatic: bool = True
    """Whether it may be chosen by default."""
    hosted: tuple[str, str] | None = None
    """The service whose engine is from another library, and that engine. Such a configuration is
    used if it was measured to be faster than our own.
    """

    def settings(self, machine: Machine, weights: int) -> Recommendation:
        """Settings for the services: those recommended for the memory of the machine, overridden by
        this configuration.
        """
        recommendation = recommended(machine, weights) if self.on_gpu else on_cpu(machine, weights, self.what)
        return Recommendation(recommendation.tier, recommendation.environ | self.environ, recommendation.why)


def _no_gpu(machine: Machine) -> str | None:
    if machine.gpu is None:
        return "there is no NVIDIA GPU"
    least = min(tier.at_least for tier in TIERS)
    return (
        None
        if machine.gpu.memory_mib >= least
        else f"{machine.gpu.name} has {machine.gpu.memory_mib} MiB, {least} are the least"
    )


def _library(machine: Machine, name: str) -> str | None:
    library = _LIBRARIES[name]
    version = machine.version(*library.distributions)
    if version is None:
        return f"{name} is not installed: pip install {library.install}"
    if parse_version(version)[: len(library.oldest)] < library.oldest or (
        library.below is not None and parse_version(version) >= library.below
    ):
        oldest = format_version(library.oldest)
        return f"{name} {version} is not supported: pip install {library.install} ({oldest} is the oldest)"
    return None


def _no_tensorrt(machine: Machine) -> str | None:
    return _no_gpu(machine) or _library(machine, "tensorrt")


def _no_hosted_llm(name: str) -> Callable[[Machine], str | None]:
    return lambda machine: _no_gpu(machine) or _library(machine, name)


def _no_kernels(machine: Machine) -> str | None:
    if machine.gpu is not None and machine.gpu.capability < AMPERE:
        return f"{machine.gpu.name} is older than Ampere (compute capability 8.0)"
    without = (
        None if machine.compiler else "there is no C compiler for Triton's launchers: apt-get install gcc libc6-dev"
    )
    return _no_gpu(machine) or _library(machine, "triton") or without


CONFIGURATIONS = (
    Configuration(
        "compile+fp16",
        "kernels of our own in CUDA graphs, products in bfloat16",
        {"llm": "torch", "token2wav": "torch"},
        {**_HALF, f"{_LLM}GPU_ENGINE": "fused", f"{_FLOW}GPU_ENGINE": "paged", f"{_FLOW}GPU_VOCODER": "windowed"},
        _no_kernels,
    ),
    Configuration(
        "fp16",
        "plain PyTorch on the GPU, which computes in float32: there is no plain half precision here",
        {"llm": "torch", "token2wav": "torch"},
        {f"{_LLM}GPU_ENGINE": "readable", f"{_FLOW}GPU_ENGINE": "readable"},
        _no_gpu,
    ),
    Configuration(
        "trt+fp16",
        "TensorRT plans of flow and vocoder, the estimator in float16; the LLM by kernels of our own",
        {"llm": "torch", "token2wav": "tensorrt"},
        {**_HALF, f"{_FLOW}ENGINE_PRECISION": "fp16"},
        _no_tensorrt,
        needs_engines=True,
        automatic=False,
        hosted=("token2wav", "tensorrt"),
    ),
    Configuration(
        "trtllm+fp16",
        "the LLM by TensorRT-LLM; flow and vocoder by kernels of our own",
        {"llm": "tensorrt_llm", "token2wav": "torch"},
        _HALF,
        _no_hosted_llm("tensorrt_llm"),
        needs_engines=True,
        automatic=False,
        hosted=("llm", "tensorrt_llm"),
    ),
    Configuration(
        "vllm+fp16",
        "the LLM by vLLM; flow and vocoder by kernels of our own",
        {"llm": "vllm", "token2wav": "torch"},
        _HALF,
        _no_hosted_llm("vllm"),
        needs_engines=True,
        automatic=False,
        hosted=("llm", "vllm"),
    ),
    Configuration(
        "onnx",
        "the flow and the vocoder as ONNX graphs on the CPU; slower than cpu, for comparison",
        {"llm": "torch", "token2wav": "onnxruntime"},
        {f"{_LLM}DEVICE": "cpu", f"{_FLOW}DEVICE": "cpu", f"{_FLOW}ENGINE_PRECISION": "fp32"},
        lambda machine: _library(machine, "onnxruntime"),
        needs_engines=True,
        on_gpu=False,
        automatic=False,
    ),
    Configuration(
        "cpu",
        "PyTorch on the CPU",
        {"llm": "torch", "token2wav": "torch"},
        {f"{_LLM}DEVICE": "cpu", f"{_FLOW}DEVICE": "cpu"},
        lambda machine: None,
        on_gpu=False,
    ),
)
BY_NAME = {configuration.name: configuration for configuration in CONFIGURATIONS}


def rating(real_time_factor: float) -> str:
    """A real-time factor (seconds of waiting per second of sound) in words."""
    if real_time_factor < 0.3:
        return "very fast"
    if real_time_factor < 0.7:
        return "fast"
    return "acceptable" if real_time_factor <= 1 else "slow"
