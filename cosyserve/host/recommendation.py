"""Recommended settings: variables of the services, calculated, not measured.

Sizes are those of CosyVoice2-0.5B (docs/gpu.md): fused LLM 1.0 GB of weights, in float32 2.6 GB;
token2wav 0.6 GB; a CUDA context and its graphs half a GB a process. Step-Audio2's flow and vocoder
have 0.55 GB that stay. Weights that an engine holds once more in another order are counted where
that engine is chosen.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cosyserve.engines import one_launch
from cosyserve.engines.gpu_facts import AMPERE, HOPPER, Gpu
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.separate_decoder import Token2WavNetworks
from cosyserve.host.hardware import Machine

LARGE_MODEL = 200 << 20
"""Bytes of weights from which more than one thread for an operation pays off."""
_MIB = 1 << 20
_USABLE = 0.92
_LEAST_PAGES_MIB = 512
CLUSTERS_MIB = 127
"""Weights of the flow's steps in thread-block clusters (services/token2wav/gpu/clusters)."""
_TOKEN2WAV = "COSYSERVE_TOKEN2WAV_"
_CLUSTERED = {"GPU_CLUSTERS": "auto", "GPU_PRECISION": "bfloat16", "GPU_KV_PRECISION": "operands"}
"""Settings of token2wav that the clusters need, which are its defaults; and no readable engine."""


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
LEAST_GPU_MIB = TIERS[-1].at_least


@dataclass(frozen=True)
class Recommendation:
    """Recommended settings."""

    tier: str
    """The kind of machine, in words."""
    environ: dict[str, str]
    """Variables for the services."""
    why: tuple[str, ...] = ()
    """Reasons for settings that are not obvious, one line each."""


def recommended(
    machine: Machine,
    weights: int,
    networks: Token2WavNetworks = COSYVOICE2,
    chosen: Mapping[str, str] | None = None,
) -> Recommendation:
    """weights: bytes of the checkpoints; a small model uses one thread. networks: flow and vocoder,
    whose state takes the memory that is left. chosen: settings of the services that are not to be
    recommended any more, some of which take memory; None: their defaults.
    """
    gpu = machine.gpu
    tier = next((tier for tier in TIERS if gpu is not None and gpu.memory_mib >= tier.at_least), None)
    if gpu is None or tier is None:
        reason = (
            "no GPU" if gpu is None else f"{gpu.name} has {gpu.memory_mib} MiB, 2 GB are the least that holds an engine"
        )
        return on_cpu(machine, weights, reason)
    return _on_gpu(machine, gpu, tier, weights, networks, chosen or {})


def on_cpu(machine: Machine, weights: int, reason: str) -> Recommendation:
    """Settings with both engines on the CPU."""
    devices = {"COSYSERVE_LLM_DEVICE": "cpu", "COSYSERVE_TOKEN2WAV_DEVICE": "cpu"}
    return Recommendation("CPU", devices | _threads(machine, weights, "LLM", "TOKEN2WAV"), (reason,))


def _on_gpu(
    machine: Machine, gpu: Gpu, tier: Tier, weights: int, networks: Token2WavNetworks, chosen: Mapping[str, str]
) -> Recommendation:
    half = gpu.capability >= AMPERE
    usable = int(gpu.memory_mib * _USABLE)
    language_model, acoustic = (1500, 1100) if half else (3100, 1100)
    if chosen.get(one_launch.GPU_DECODE) == one_launch.ONE_LAUNCH:
        language_model += one_launch.WEIGHTS_MIB
    if _has_clusters(gpu, networks, chosen):
        acoustic += CLUSTERS_MIB
    why = [] if half else ["older than Ampere (8.0): the readable engines serve, in float32"]
    environ = {"COSYSERVE_TOKEN2WAV_DEVICE": "cuda", "COSYSERVE_TOKEN2WAV_MAX_STREAMS": str(tier.streams)}
    pages = usable - acoustic - language_model - tier.keys
    if pages >= _LEAST_PAGES_MIB:
        environ |= {"COSYSERVE_LLM_DEVICE": "cuda", "COSYSERVE_LLM_KV_BUDGET_MIB": str(tier.keys)}
    else:
        pages = usable - acoustic
        environ |= {"COSYSERVE_LLM_DEVICE": "cpu"} | _threads(machine, weights, "LLM")
        why.append(
            "both engines have no room in this memory: the flow, which computes most, gets the GPU, the LLM the CPU"
        )
    prompts = min(2048, pages // 4)
    environ |= {
        "COSYSERVE_LLM_MAX_SEQUENCES": str(tier.sentences),
        "COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES": str(prompts * _MIB),
        "COSYSERVE_TOKEN2WAV_STATE_BYTES": str((pages - prompts) * _MIB),
        "COSYSERVE_ORCHESTRATOR_MAX_STREAMS": str(tier.streams),
    }
    second_bytes = networks.state_bytes_per_second / (2 if half else 1)
    kept = networks.kept_seconds
    of = "prompts included" if kept is None else f"of prompts and, of each stream, at most the newest {kept:g} s"
    why.append(
        f"state for {(pages - prompts) * _MIB / second_bytes:.0f} s of sound at the published sizes, {of}, plus "
        f"{prompts} MiB of prompts that are kept"
    )
    return Recommendation(tier.name, dict(sorted(environ.items())), tuple(why))


def _has_clusters(gpu: Gpu, networks: Token2WavNetworks, chosen: Mapping[str, str]) -> bool:
    """Whether small batches of the flow are computed in clusters: on Hopper, of CosyVoice2's."""
    settings = {name: chosen.get(_TOKEN2WAV + name) or default for name, default in _CLUSTERED.items()}
    readable = chosen.get(f"{_TOKEN2WAV}GPU_ENGINE") == "readable"
    flow = networks.flow_network == COSYVOICE2.flow_network
    return gpu.capability == HOPPER and flow and settings == _CLUSTERED and not readable


def _threads(machine: Machine, weights: int, *services: str) -> dict[str, str]:
    """Variables of services that share the cores; none for one thread, which is the default."""
    threads = int(machine.cores) // len(services) if weights >= LARGE_MODEL else 1
    return {f"COSYSERVE_{service}_THREADS": str(threads) for service in services} if threads > 1 else {}
