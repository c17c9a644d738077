"""Ways to run the two engines on one machine, and what each of them lacks here: our own engines,
which have been measured, the fastest first, then those of other libraries."""

from collections.abc import Callable
from dataclasses import dataclass

from cosyserve.host.hardware.library_versions import SUPPORTED_LIBRARIES, format_version, parse_version
from cosyserve.host.hardware.machine import Machine
from cosyserve.host.hardware.recommendation import AMPERE, TIERS, Recommendation, on_cpu, recommended

_LIBRARIES = {library.name: library for library in SUPPORTED_LIBRARIES}
_LLM, _FLOW = "COSYSERVE_LLM_", "COSYSERVE_TOKEN2WAV_"
_HALF = {f"{_LLM}GPU_PRECISION": "bfloat16", f"{_FLOW}GPU_PRECISION": "bfloat16"}


@dataclass(frozen=True)
class Configuration:
    """what: in words. backends: of llm and token2wav. environ: what makes it this one and no other,
    devices aside, which the GPU's memory decides. lacks: why this machine cannot run it, None where
    it can, as far as that is known without starting it. needs_engines: they are built before it
    starts. automatic: chosen where nobody says what to take. hosted: the service whose engine is
    another library's, and which one; such a configuration serves where it was measured to be faster
    than our own."""

    name: str
    what: str
    backends: dict[str, str]
    environ: dict[str, str]
    lacks: Callable[[Machine], str | None]
    needs_engines: bool = False
    on_gpu: bool = True
    automatic: bool = True
    hosted: tuple[str, str] | None = None

    def settings(self, machine: Machine, weights: int) -> Recommendation:
        """Variables for the services: what the machine's memory recommends, and above it what this
        configuration is.
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
        return f"{name} {version} is not supported: pip install {library.install} ({format_version(library.oldest)} is the oldest)"
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
    """In words, of seconds of waiting per second of sound."""
    if real_time_factor < 0.3:
        return "very fast"
    if real_time_factor < 0.7:
        return "fast"
    return "acceptable" if real_time_factor <= 1 else "slow"
