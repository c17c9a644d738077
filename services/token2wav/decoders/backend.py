"""The description of a loaded backend, and the settings that select and configure one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.engines.compatibility import Identity
from services.token2wav.decoders.interface import Decoder
from services.token2wav.inputs.request import Profile

Decoders = Mapping[Profile, Decoder[Any]]
BACKENDS = ("torch", "tensorrt", "onnxruntime", "fake")
"""`torch` runs the model in PyTorch, `tensorrt` and `onnxruntime` run exported graphs, `fake`
generates tones without weights.
"""
FAKE_FAULTS = ("silence", "pause", "non_finite", "saturated", "device_lost")
"""Faults that the fake can simulate: a silent sentence; four seconds of silence after the first
half second; non-finite samples after the first half second; saturated samples; the error of a lost
GPU.
"""


@dataclass(frozen=True)
class Backend:
    """A loaded engine."""

    identity: Identity
    decoders: Decoders
    euler_steps: Callable[[], int]
    """Returns the number of Euler steps begun since the start, summed over all streams."""
    warm_up_profile: Profile = Profile.CONTINUOUS
    """A profile that this backend supports: an estimator without streaming masks has no continuous
    profile.
    """
    buckets: tuple[int, ...] = ()
    """Batch sizes for which steps are recorded as CUDA graphs or built as engines."""
    first_hop_tokens: int = 0
    """For which prompts are trimmed, see `services.token2wav.inputs.chunking`; 0: they are not."""
    release: Callable[[], None] = lambda: None
    """Releases the files that the backend serves from; call it last."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of the engine, independent of the server around it."""

    model: Path | None = None
    """Model directory; the fake backend needs none."""
    decoder_model: Path | None = None
    """Directory of flow and vocoder, where they are not those of `model`: of Step-Audio2, or of the
    same generation.
    """
    device: str = "cpu"
    """Device as torch names it."""
    threads: int = 1
    """CPU threads of one operation, at least 1. One suits the bundled model; for the published
    sizes use the number of cores.
    """
    widest_step: int | None = None
    """Maximum number of streams in one step, at least 1. None: 1 on a CPU, where streams would be
    computed one after the other, 32 with the paged engine, otherwise 16.
    """
    prompt_cache_bytes: int = 2 << 30
    """Bytes of memory for cached states of prompts."""
    state_bytes: int = 8 << 30
    """Bytes of memory for the states of active streams, at least 1. With the published sizes one
    second of audio, prompt included, takes 231 MB (CosyVoice2) or 180 MB (CosyVoice3) in float32,
    half of it in bfloat16, and about a quarter with keys and values of 8 bits.
    """
    gpu_engine: str = "auto"
    """Engine on a GPU: `paged` (our own kernels and CUDA graphs; an error where it cannot run, also
    without a GPU unless the device is cpu), `readable` (the same PyTorch code as on a CPU), or
    `auto`: paged if it can run.
    """
    gpu_precision: str = "bfloat16"
    """Number type of the paged engine's matrix products and state: `bfloat16` or `float32`."""
    gpu_kv_precision: str = "operands"
    """Number type of the keys and values in the paged engine's state: `operands`, that of
    gpu_precision, or `int8` or `float8` (e4m3), with a scale for each frame and head.
    """
    gpu_vocoder: str = "windowed"
    """Vocoder of the paged engine: `windowed` (our own kernels and CUDA graphs) or `readable`."""
    gpu_clusters: str = "auto"
    """Whether thread-block clusters compute small batches of CosyVoice2's flow: `auto` (where they
    can, on Hopper) or `off`.
    """
    first_hop_tokens: int | None = None
    """Prompts are trimmed at their start so that the first hop has this many tokens, 11 to 25 (3 to
    25 of CosyVoice3; see `inputs.chunking`); 0 leaves prompts unchanged. None: 20 (CosyVoice3: 12)
    with the paged engine, 0 for a decoder whose prompt is one block, and otherwise.
    """
    engines: Path | None = None
    """Directory of the engine cache. None: the default of `cosyserve.engines.engine_cache`."""
    engine_precision: str = "fp32"
    """Precision of the exported estimator: `fp32`, `fp16`, `bf16` or `fp8`."""
    engine_estimator: str = "own"
    """`own`, or `published` for the file that comes with the model and supports full attention
    only.
    """
    engine_contexts: int = 2
    """Number of execution slots, each with its own CUDA stream and memory, 1 to 64."""
    engine_compatibility: str = "none"
    """What TensorRT plans support in addition to this machine: `none`, `hardware`, `version` or
    `hardware+version`.
    """
    fake_token_seconds: float = 0.0
    """Seconds that the fake simulates for each token."""
    fake_fault: str = ""
    """Fault that the fake simulates: one of FAKE_FAULTS, or empty."""
    fake_fault_share: float = 1.0
    """Share of all (seed, sentence) pairs that have the fault, 0 to 1."""

    @property
    def weights(self) -> Path | None:
        """Where flow and vocoder are."""
        return self.decoder_model or self.model
