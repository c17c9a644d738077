"""Settings of the speech-token service, read from `COSYSERVE_LLM_*`."""

from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.benchmark_note import LLM
from cosyserve.engines.fallback import LOAD_SECONDS, check_load_seconds
from cosyserve.engines.one_launch import ONE_LAUNCH
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.settings import require_range

HOSTED_KV_MIB = 4096
"""Default MiB of keys and values for TensorRT-LLM and vLLM."""
FAKE_FAULTS = ("runaway", "short", "prompt", "non_finite", "constant", "left_out")
"""In this order: no end, the earliest possible end, the prompt's tokens instead of the text's,
non-finite numbers, always the same token, only three quarters of the tokens that the alignment
expects.
"""
CHOICES = {
    "backend": ("auto", "tensorrt_llm", "vllm", "torch", "fake"),
    "device": ("auto", "cpu", "cuda"),
    "gpu_engine": ("auto", "fused", "readable"),
    "gpu_precision": ("bfloat16", "float32"),
    "gpu_decode": ("launches", ONE_LAUNCH),
}


@dataclass(frozen=True, kw_only=True)
class LlmSettings(ServerSettings):
    """Settings of the speech-token service. `listen` is required, and `model` unless backend=fake;
    the rest have defaults.
    """

    model: Path | None = None
    """Model directory; required unless backend=fake."""
    backend: str = "auto"
    """auto: the first that this machine can run of: the hosted engine that `auto_first` or a note
    of `cosyserve start --benchmark` names, torch with fused steps, readable torch on CUDA, torch on
    the CPU; each engine that is skipped is logged and reported by GetInfo. torch: the same without
    a hosted engine. tensorrt_llm, vllm: only that engine. fake: no model.
    """
    auto_first: str = ""
    """Hosted engine that backend=auto tries before our own: tensorrt_llm or vllm. Empty: the one
    that a benchmark found faster on this host, if any.
    """
    strict: bool = False
    """Whether the start fails, with the reason, when the first of these engines cannot serve,
    instead of trying the next one.
    """
    converted: Path | None = None
    """Directory that `cosyserve model convert` has written for the model: `--target hf` for
    TensorRT-LLM's PyTorch backend and vLLM, `--target vllm` for vLLM. Unset: TensorRT-LLM serves a
    built engine from the cache.
    """
    engines: Path | None = None
    """Directory of the engine cache; unset: the directory to which `cosyserve model build`
    writes.
    """
    load_seconds: float = LOAD_SECONDS
    """Seconds, time limit for loading one engine. An engine that has not loaded by then is skipped;
    if it is the last one, the start fails.
    """
    device: str = "auto"
    """auto: CUDA if there is a device, else the CPU."""
    gpu_engine: str = "auto"
    """Engine on CUDA. fused: CUDA graphs of Triton kernels, with sampling on the device; an error
    where it cannot run, also without CUDA unless device=cpu. readable: the same code as on a CPU,
    for comparison. auto: fused if it can run.
    """
    gpu_precision: str = "bfloat16"
    """Number type of the matrices, embeddings, keys and values of the fused engine; its head and
    all sums are float32. float32 is exact within rounding, and slower. The readable engine is
    always float32.
    """
    gpu_decode: str = "launches"
    """How the fused engine runs a decode step of a single sentence. launches: as steps of several.
    one_launch: as one launch that fills the GPU, which no other process may then use; in bfloat16
    only, and an error at the start where it cannot run.
    """
    threads: int = 1
    """Threads of one operation on the CPU, at least 1. One suits the bundled model; for a model of
    the published sizes use the number of cores. Part of the engine's identity, since it affects
    rounding.
    """
    batch_invariant: bool | None = None
    """Whether the tokens of a sentence are independent of other sentences: the readable engine then
    runs rows one by one, the fused one in blocks of one shape. Unset: true on the CPU, false on
    CUDA.
    """
    max_sequences: int = 16
    """Most sentences in one step of the engine, at least 1; a sentence that waits for text is not
    counted.
    """
    max_waiting: int = 16
    """Most sentences accepted beyond max_sequences, at least 0; one more is refused with
    RESOURCE_EXHAUSTED. Their sum is also the limit for open text streams.
    """
    idle_seconds: float = 60.0
    """Seconds, greater than 0, without text after which a text stream whose text is not complete
    ends with DEADLINE_EXCEEDED.
    """
    retry_after_seconds: float = 1.0
    """Retry hint for a refused caller, in seconds, at least 0."""
    max_positions: int = 8192
    """Most positions of a sequence, at least 1: prompt, text and the most speech tokens that the
    text can have. A text that may need more is refused. For a text that arrives over time the
    readable engine reserves all of them, the fused one takes memory as it grows.
    """
    kv_budget_mib: int | None = None
    """MiB of keys and values for all sentences that have begun, at least 1; unset: limited only by
    the number of sentences. The fused engine, TensorRT-LLM and vLLM allocate all of it at the
    start; unset: 4096.
    """
    prompt_states_mib: int = 64
    """On the CPU: MiB for the cached keys and values of voice prompts, which the next sentence of
    the voice reuses; 0: no cache. The cache changes no token.
    """
    fake_token_milliseconds: float = 0.0
    """Milliseconds that the fake backend takes for a token, at least 0."""
    fake_fault: str = ""
    """Fault of the fake backend, one of FAKE_FAULTS; empty: none."""
    fake_fault_share: float = 1.0
    """Share of all (seed, sentence) with that fault, 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}, allowed: {', '.join(allowed)}")
        if self.auto_first and self.auto_first not in LLM.hosted:
            raise ValueError(f"auto_first is {self.auto_first!r}, allowed: {', '.join(LLM.hosted)}, or empty")
        if self.fake_fault and self.fake_fault not in FAKE_FAULTS:
            raise ValueError(f"fake_fault is {self.fake_fault!r}, allowed: {', '.join(FAKE_FAULTS)}")
        require_range(self, ["fake_fault_share"], "{name} is {value}, must be 0 to 1", least=0, most=1)
        check_load_seconds(self.load_seconds)
        if self.backend != "fake" and self.model is None:
            raise ValueError(f"model is not set and backend={self.backend} needs it")
        counts = ("threads", "max_sequences", "max_positions")
        require_range(self, counts, "{name} is {value}, must be at least 1", least=1)
        require_range(self, ["idle_seconds"], "{name} is {value}, must be greater than 0", above=0)
        for reason, present in self._against_one_launch().items():
            if self.gpu_decode == ONE_LAUNCH and present:
                raise ValueError(f"gpu_decode={ONE_LAUNCH} {reason}")
        from_zero = ("max_waiting", "retry_after_seconds", "fake_token_milliseconds", "prompt_states_mib")
        require_range(self, from_zero, "{name} is {value}, must not be negative", least=0)
        require_range(self, ["kv_budget_mib"], "{name} is {value}, must be at least 1 or unset", least=1)

    def _against_one_launch(self) -> dict[str, bool]:
        return {
            f"is of our own engine, backend is {self.backend}": self.backend not in ("auto", "torch"),
            "needs a GPU, device is cpu": self.device == "cpu",
            "is of fused steps, gpu_engine is readable": self.gpu_engine == "readable",
            "computes in bfloat16, gpu_precision is float32": self.gpu_precision == "float32",
            "rounds otherwise than steps of several sentences, batch_invariant is true": bool(self.batch_invariant),
        }
