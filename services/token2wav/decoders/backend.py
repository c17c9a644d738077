"""Engines by name: `torch` computes CosyVoice2, `tensorrt` and `onnxruntime` do by exported graphs,
`fake` hums without weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.engines.identity import Identity
from services.token2wav.decoders.interface import Decoder
from services.token2wav.inputs.request import Profile

Decoders = Mapping[Profile, Decoder[Any]]
BACKENDS = ("torch", "tensorrt", "onnxruntime", "fake")
FAKE_FAULTS = ("silence", "pause", "non_finite", "saturated")
"""A silent sentence; four silent seconds after the first half second; samples that are no numbers
after it.
"""


@dataclass(frozen=True)
class Backend:
    """A loaded engine. euler_steps: how many have been begun since the start, all streams
    together.
    """

    identity: Identity
    decoders: Decoders
    euler_steps: Callable[[], int]
    warm_up_profile: Profile = Profile.CONTINUOUS
    """One that it speaks: an estimator without streaming masks has no continuous profile."""
    buckets: tuple[int, ...] = ()
    """Numbers of streams that steps are recorded or built for."""
    release: Callable[[], None] = lambda: None
    """Gives back the files that it serves from; the last call to it."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """model: model directory; the fake needs none. device: as torch names it. threads: of one
    operation on the CPU; one suits the bundled model, with the published sizes take the cores there
    are. widest_step: streams that share a step, None: 1 on the CPU, where they would be computed
    one after the other, 16 elsewhere, 32 with the paged engine. prompt_cache_bytes: memory for
    states behind prompts. state_bytes: memory for the state of streams. gpu_engine: on a GPU,
    `paged` (kernels and graphs of our own), `readable` (the CPU's arithmetic there), or `auto`:
    paged where it can run. gpu_precision: of the paged engine's products and state, bfloat16 or
    float32. gpu_vocoder: of the paged engine, `windowed` (kernels and graphs too) or `readable`.
    first_hop_tokens: prompts are cut at their start for a first hop of so many tokens, see
    `inputs.prompt_trimming`; 0: as they come. engines: directory of the engine cache, None:
    `cosyserve.engines.engine_cache`'s; engine_precision: of the exported estimator, fp32, fp16,
    bf16 or fp8; engine_estimator: `own`, or `published` for the file that comes with the model and
    knows full attention only; engine_compatibility: what plans of TensorRT were built for beside
    this machine, none, hardware, version or hardware+version; engine_contexts: places of execution,
    each with a stream and memory of its own. fake_token_seconds: time that the fake takes for a
    token. fake_fault: how the fake misbehaves, one of FAKE_FAULTS, or empty; fake_fault_share: for
    which share of all (seed, sentence) it does."""

    model: Path | None = None
    device: str = "cpu"
    threads: int = 1
    widest_step: int | None = None
    prompt_cache_bytes: int = 2 << 30
    state_bytes: int = 8 << 30
    gpu_engine: str = "auto"
    gpu_precision: str = "bfloat16"
    gpu_vocoder: str = "windowed"
    first_hop_tokens: int = 0
    engines: Path | None = None
    engine_precision: str = "fp32"
    engine_estimator: str = "own"
    engine_contexts: int = 2
    engine_compatibility: str = "none"
    fake_token_seconds: float = 0.0
    fake_fault: str = ""
    fake_fault_share: float = 1.0
