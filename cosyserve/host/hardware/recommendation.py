"""Recommended settings for the hardware, as variables of the services. They are calculated, not
measured.

Sizes are those of CosyVoice2-0.5B (docs/gpu.md): fused LLM 1.0 GB of weights, in float32 2.6 GB;
token2wav 0.6 GB; a CUDA context and its graphs half a GB a process; a second of sound in the state
of token2wav 116 MB in bfloat16, 231 MB in float32.
"""

from dataclasses import dataclass

from cosyserve.engines.gpu_facts import Gpu
from cosyserve.host.hardware import Machine

AMPERE = (8, 0)
"""Least compute capability of our own engines: matrix units with bfloat16."""
LARGE_MODEL = 200 << 20
"""Bytes of weights from which more than one thread for an operation pays off."""
_MIB = 1 << 20
_USABLE = 0.92
_LEAST_PAGES_MIB = 512


@dataclass(frozen=True)
class Tier:
    """Settings for a size of GPU memory."""

    name: str
    at_least: int
    """GPU memory in MiB."""
    keys: int
    """Memory of keys and values of the LLM, in MiB."""
    sentences: int
    """Sentences at once in the LLM."""
    streams: int
    """Streams at once in token2wav."""


TIERS = (
    Tier("data-centre, 40 GB and more", 39_000, 4096, 64, 64),
    Tier("8 GB and more", 7_900, 1024, 16, 16),
    Tier("4 to 8 GB", 3_900, 256, 4, 4),
    Tier("2 to 4 GB", 1_900, 256, 1, 1),
)
"""A card of 8 GB reports a little less."""


@dataclass(frozen=True)
class Recommendation:
    """Recommended settings."""

    tier: str
    """The kind of machine, in words."""
    environ: dict[str, str]
    """Variables for the services."""
    why: tuple[str, ...] = ()
    """Reasons for settings that are not obvious, one line each."""


def recommended(machine: Machine, weights: int) -> Recommendation:
    """weights: bytes of the checkpoints; a small model uses one thread."""
    gpu = machine.gpu
    tier = next((tier for tier in TIERS if gpu is not None and gpu.memory_mib >= tier.at_least), None)
    if gpu is None or tier is None:
        reason = (
            "no GPU" if gpu is None else f"{gpu.name} has {gpu.memory_mib} MiB, 2 GB are the least that holds an engine"
        )
        return on_cpu(machine, weights, reason)
    return _on_gpu(machine, gpu, tier, weights)


def on_cpu(machine: Machine, weights: int, reason: str) -> Recommendation:
    """Settings with both engines on the CPU."""
    environ = {"COSYSERVE_LLM_DEVICE": "cpu", "COSYSERVE_TOKEN2WAV_DEVICE": "cpu"}
    threads = _threads(machine, weights, 2)
    if threads > 1:
        environ |= {"COSYSERVE_LLM_THREADS": str(threads), "COSYSERVE_TOKEN2WAV_THREADS": str(threads)}
    return Recommendation("CPU", environ, (reason,))


def _on_gpu(machine: Machine, gpu: Gpu, tier: Tier, weights: int) -> Recommendation:
    half = gpu.capability >= AMPERE
    usable = int(gpu.memory_mib * _USABLE)
    language_model, acoustic = (1500, 1100) if half else (3100, 1100)
    why = []
    if not half:
        why.append("older than Ampere (8.0): the readable engines serve, in float32")
    environ = {"COSYSERVE_TOKEN2WAV_DEVICE": "cuda", "COSYSERVE_TOKEN2WAV_MAX_STREAMS": str(tier.streams)}
    pages = usable - acoustic - language_model - tier.keys
    if pages >= _LEAST_PAGES_MIB:
        environ |= {"COSYSERVE_LLM_DEVICE": "cuda", "COSYSERVE_LLM_KV_BUDGET_MIB": str(tier.keys)}
    else:
        pages = usable - acoustic
        environ["COSYSERVE_LLM_DEVICE"] = "cpu"
        why.append(
            "both engines have no room in this memory: the flow, which computes most, gets the GPU, the LLM the CPU"
        )
        if (threads := _threads(machine, weights, 1)) > 1:
            environ["COSYSERVE_LLM_THREADS"] = str(threads)
    prompts = min(2048, pages // 4)
    environ |= {
        "COSYSERVE_LLM_MAX_SEQUENCES": str(tier.sentences),
        "COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": str(prompts * _MIB),
        "COSYSERVE_TOKEN2WAV_STATE_BYTES": str((pages - prompts) * _MIB),
        "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": str(tier.streams),
    }
    seconds = (pages - prompts) * _MIB / (116e6 if half else 231e6)
    why.append(
        f"state for {seconds:.0f} s of sound at the published sizes, prompts included, plus {prompts} MiB of prompts "
        "that are kept"
    )
    return Recommendation(tier.name, dict(sorted(environ.items())), tuple(why))


def _threads(machine: Machine, weights: int, sharers: int) -> int:
    return max(1, int(machine.cores) // sharers) if weights >= LARGE_MODEL else 1
