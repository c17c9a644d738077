"""Settings of the speech-token service, read from `COSYSERVE_LLM_*`."""

from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.benchmark_note import NotedService
from cosyserve.engines.fallback import LOAD_SECONDS, check_load_seconds
from cosyserve.rpc.server import ServerSettings

BACKENDS = ("auto", "tensorrt_llm", "vllm", "torch", "fake")
NOTED = NotedService("llm", ("tensorrt_llm", "vllm"), ("llm.pt",), ("torch", "triton", "tensorrt_llm", "vllm"))
"""What a note of `cosyserve start --benchmark` about this service depends on."""
HOSTED_KV_MIB = 4096
"""Memory for keys and values that TensorRT-LLM and vLLM take where no setting says another."""
FAKE_FAULTS = ("runaway", "short", "prompt", "non_finite", "constant", "left_out")
"""No end, an end as soon as there may be one, the prompt's tokens instead of the text's, numbers
that are none, the same token always, only three quarters of the tokens that its alignment counts
on."""
DEVICES = ("auto", "cpu", "cuda")
GPU_ENGINES = ("auto", "fused", "readable")
GPU_PRECISIONS = ("bfloat16", "float32")


@dataclass(frozen=True, kw_only=True)
class LlmSettings(ServerSettings):
    """Every setting; all but `listen` and `model` have a default."""

    model: Path | None = None
    """Model directory; needed unless backend=fake."""
    backend: str = "auto"
    """auto: the first that serves here of the hosted engine that `auto_first` or a note of
    `cosyserve start --benchmark` names, torch with fused steps, torch readable on CUDA, torch on
    the CPU; each step down is logged and told by GetInfo. torch: the same without a hosted engine.
    tensorrt_llm, vllm: that one or none. fake: no model."""
    auto_first: str = ""
    """Hosted engine that backend=auto tries before our own: tensorrt_llm or vllm. Empty: the one
    that was measured to be faster here, if any."""
    strict: bool = False
    """No step down: where the first of these engines cannot serve, the start fails with the
    reason.
    """
    converted: Path | None = None
    """What `cosyserve model convert` has made of the model: `--target hf` for TensorRT-LLM's
    PyTorch backend and vLLM, `--target vllm` for vLLM. Unset: TensorRT-LLM serves an engine of the
    cache."""
    engines: Path | None = None
    """Directory of the engine cache; unset: where `cosyserve model build` writes."""
    load_seconds: float = LOAD_SECONDS
    """Time limit for loading one engine. One that has not loaded by then is stepped over, or ends
    the start where it is the last.
    """
    device: str = "auto"
    """auto: CUDA where there is a device, else the CPU."""
    gpu_engine: str = "auto"
    """On CUDA. fused: CUDA graphs of Triton kernels, the device samples. readable: what runs on a
    CPU, for comparison. auto: fused where that can run."""
    gpu_precision: str = "bfloat16"
    """Of matrices, embeddings, keys and values of the fused engine; its head and all sums are
    float32. float32: exact within rounding, and slower. The readable engine is float32."""
    threads: int = 1
    """Threads of one operation on the CPU. One suits the bundled model; with the published sizes
    take the cores there are. Part of the engine's identity: another number rounds differently."""
    batch_invariant: bool | None = None
    """Tokens do not depend on who else is served: the readable engine runs rows one by one, the
    fused one in blocks of one shape. Unset: on the CPU yes, on CUDA no."""
    max_sequences: int = 16
    """Sentences that share the engine's steps; one that waits for text is not counted."""
    max_waiting: int = 16
    """Sentences accepted beyond that; one more is refused with RESOURCE_EXHAUSTED. At most as many
    text streams as both together are open."""
    idle_seconds: float = 60.0
    """A text stream on which no text comes for so long, although its text is not ended, is ended
    with DEADLINE_EXCEEDED.
    """
    retry_after_seconds: float = 1.0
    """What a refused caller is told to wait."""
    max_positions: int = 8192
    """Longest sequence: prompt, text and the most speech tokens that the text can have. A text that
    may need more is refused. A text that arrives over time may come to so many; the readable engine
    reserves them all, the fused one takes memory as it grows."""
    kv_budget_mib: int | None = None
    """Memory for keys and values of all sentences that have begun; unset: no limit but the number
    of sentences. The fused engine, TensorRT-LLM and vLLM take all of it at the start; unset: 4096.
    """
    prompt_states_mib: int = 64
    """On the CPU: memory for keys and values behind voices' prompts, which are kept for the next
    sentence of the voice; 0: none. What is kept changes no token."""
    fake_token_milliseconds: float = 0.0
    """Time that the fake backend takes for a token."""
    fake_fault: str = ""
    """How the fake backend misbehaves, one of FAKE_FAULTS; empty: not at all."""
    fake_fault_share: float = 1.0
    """For which share of all (seed, sentence) it does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choices = {"backend": BACKENDS, "device": DEVICES, "gpu_engine": GPU_ENGINES, "gpu_precision": GPU_PRECISIONS}
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}, allowed: {', '.join(allowed)}")
        if self.auto_first and self.auto_first not in NOTED.hosted:
            raise ValueError(f"auto_first is {self.auto_first!r}, allowed: {', '.join(NOTED.hosted)}, or empty")
        if self.fake_fault and self.fake_fault not in FAKE_FAULTS:
            raise ValueError(f"fake_fault is {self.fake_fault!r}, allowed: {', '.join(FAKE_FAULTS)}")
        if not 0 <= self.fake_fault_share <= 1:
            raise ValueError(f"fake_fault_share is {self.fake_fault_share}, must be 0 to 1")
        check_load_seconds(self.load_seconds)
        if self.backend != "fake" and self.model is None:
            raise ValueError(f"model is not set and backend={self.backend} needs it")
        for name in ("threads", "max_sequences", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.idle_seconds <= 0:
            raise ValueError(f"idle_seconds is {self.idle_seconds}, must be greater than 0")
        for name in ("max_waiting", "retry_after_seconds", "fake_token_milliseconds", "prompt_states_mib"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must not be negative")
        if self.kv_budget_mib is not None and self.kv_budget_mib < 1:
            raise ValueError(f"kv_budget_mib is {self.kv_budget_mib}, must be at least 1 or unset")
