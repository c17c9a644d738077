"""Configurations of the two engines on one machine, and what each lacks here: our own engines
first, which have been measured, the fastest first, then those of other libraries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosyserve.engines.gpu_facts import AMPERE
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.separate_decoder import Token2WavNetworks
from cosyserve.host.hardware import SUPPORTED_LIBRARIES, Machine, format_version
from cosyserve.host.recommendation import LEAST_GPU_MIB, Recommendation, on_cpu, recommended

_LIBRARIES = {library.name: library for library in SUPPORTED_LIBRARIES}
_KERNELS = "triton"
"""The library of our own kernels."""
_LLM, _FLOW = "COSYSERVE_LLM_", "COSYSERVE_TOKEN2WAV_"
_HALF = {f"{_LLM}GPU_PRECISION": "bfloat16", f"{_FLOW}GPU_PRECISION": "bfloat16"}


@dataclass(frozen=True)
class Configuration:
    """One way to run the two engines."""

    name: str
    what: str
    """In words."""
    environ: dict[str, str]
    """Variables that define it, without devices, which depend on the memory of the GPU."""
    engines: dict[str, str] = field(default_factory=dict)
    """Of llm and token2wav, those that are not torch."""
    library: str = ""
    """The library that it needs besides torch."""
    on_gpu: bool = True
    automatic: bool = True
    """Whether it may be chosen by default."""
    hosted: str = ""
    """The service whose engine is from another library. Such a configuration is used if it was
    measured to be faster than our own.
    """

    @property
    def backends(self) -> dict[str, str]:
        """Of llm and token2wav."""
        return {"llm": "torch", "token2wav": "torch", **self.engines}

    def settings(
        self,
        machine: Machine,
        weights: int,
        networks: Token2WavNetworks = COSYVOICE2,
        chosen: Mapping[str, str] | None = None,
    ) -> Recommendation:
        """Settings for the services: those recommended for the memory of the machine, overridden by
        this configuration. weights, networks, chosen: as for `recommended`.
        """
        recommendation = (
            recommended(machine, weights, networks, self.environ if chosen is None else chosen)
            if self.on_gpu
            else on_cpu(machine, weights, self.what)
        )
        return Recommendation(recommendation.tier, recommendation.environ | self.environ, recommendation.why)

    def lacks(self, machine: Machine) -> str | None:
        """Why a machine cannot run it, None if it can, as far as known without starting it."""
        gpu = machine.gpu
        if self.library == _KERNELS and gpu is not None and gpu.capability < AMPERE:
            return f"{gpu.name} is older than Ampere (compute capability 8.0)"
        if self.on_gpu and gpu is None:
            return "there is no NVIDIA GPU"
        if self.on_gpu and gpu is not None and gpu.memory_mib < LEAST_GPU_MIB:
            return f"{gpu.name} has {gpu.memory_mib} MiB, {LEAST_GPU_MIB} are the least"
        if self.library and (reason := _lacking_library(machine, self.library)):
            return reason
        if self.library == _KERNELS and machine.compiler is None:
            return "there is no C compiler for Triton's launchers: apt-get install gcc libc6-dev"
        return None


def _lacking_library(machine: Machine, name: str) -> str | None:
    library = _LIBRARIES[name]
    version = machine.version(*library.distributions)
    if version is None:
        return f"{name} is not installed: pip install {library.install}"
    if not library.supports(version):
        oldest = format_version(library.oldest)
        return f"{name} {version} is not supported: pip install {library.install} ({oldest} is the oldest)"
    return None


CONFIGURATIONS = (
    Configuration(
        "compile+fp16",
        "kernels of our own in CUDA graphs, products in bfloat16",
        {**_HALF, f"{_LLM}GPU_ENGINE": "fused", f"{_FLOW}GPU_ENGINE": "paged", f"{_FLOW}GPU_VOCODER": "windowed"},
        library=_KERNELS,
    ),
    Configuration(
        "fp16",
        "plain PyTorch on the GPU, which computes in float32: there is no plain half precision here",
        {f"{_LLM}GPU_ENGINE": "readable", f"{_FLOW}GPU_ENGINE": "readable"},
    ),
    Configuration(
        "trt+fp16",
        "TensorRT plans of flow and vocoder, the estimator in float16; the LLM by kernels of our own",
        {**_HALF, f"{_FLOW}ENGINE_PRECISION": "fp16"},
        {"token2wav": "tensorrt"},
        library="tensorrt",
        automatic=False,
        hosted="token2wav",
    ),
    Configuration(
        "trtllm+fp16",
        "the LLM by TensorRT-LLM; flow and vocoder by kernels of our own",
        _HALF,
        {"llm": "tensorrt_llm"},
        library="tensorrt_llm",
        automatic=False,
        hosted="llm",
    ),
    Configuration(
        "vllm+fp16",
        "the LLM by vLLM; flow and vocoder by kernels of our own",
        _HALF,
        {"llm": "vllm"},
        library="vllm",
        automatic=False,
        hosted="llm",
    ),
    Configuration(
        "onnx",
        "the flow and the vocoder as ONNX graphs on the CPU; slower than cpu, for comparison",
        {f"{_LLM}DEVICE": "cpu", f"{_FLOW}DEVICE": "cpu", f"{_FLOW}ENGINE_PRECISION": "fp32"},
        {"token2wav": "onnxruntime"},
        library="onnxruntime",
        on_gpu=False,
        automatic=False,
    ),
    Configuration("cpu", "PyTorch on the CPU", {f"{_LLM}DEVICE": "cpu", f"{_FLOW}DEVICE": "cpu"}, on_gpu=False),
)
BY_NAME = {configuration.name: configuration for configuration in CONFIGURATIONS}


def rating(real_time_factor: float) -> str:
    """A real-time factor (seconds of waiting per second of sound) in words."""
    if real_time_factor < 0.3:
        return "very fast"
    if real_time_factor < 0.7:
        return "fast"
    return "acceptable" if real_time_factor <= 1 else "slow"
