"""CosyVoice2 in PyTorch behind the three profiles."""

import logging
from pathlib import Path

import torch

from cosyserve.engines.identity import Identity
from cosyserve.engines.kernel_cache import Key, keep_kernels
from cosyserve.errors import SettingsError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.blocks_ahead import BlocksAhead, core_to_spare
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.offline import OfflineDecoder
from services.token2wav.decoders.upstream import UpstreamDecoder
from services.token2wav.flow.flow import Flow, load_flow
from services.token2wav.gpu.device.suitability import Unsuitable, check_device, kernels_compile
from services.token2wav.inputs.request import Profile
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder

log = logging.getLogger(__name__)
GPU_CHOICES = {
    "gpu_engine": ("auto", "paged", "readable"),
    "gpu_precision": ("bfloat16", "float32"),
    "gpu_vocoder": ("readable", "windowed"),
}
WEIGHTS = ("flow.pt", "hift.pt")
WINDOWED_OPERANDS = {"bfloat16": "float16", "float32": "ieee"}
"""What the windowed vocoder's products take, by gpu_precision; see
`gpu.windowed_vocoder.vocoder`.
"""


def load_torch(model: Path, settings: EngineSettings) -> Backend:
    """Raises ModelError naming file and tensor, SettingsError for a device or choice that is not
    there or cannot run. Sets the process's thread count."""
    for name, choices in GPU_CHOICES.items():
        if getattr(settings, name) not in choices:
            raise SettingsError(f"{name} {getattr(settings, name)!r} is not known; there are {', '.join(choices)}")
    directory, device = ModelDirectory(model), device_of(settings.device)
    torch.set_num_threads(settings.threads)
    flow, vocoder = load_flow(directory, device), load_vocoder(directory, device)
    if device.type == "cuda" and settings.gpu_engine != "readable":
        try:
            return _paged(directory, device, settings, flow, vocoder)
        except Unsuitable as error:
            if settings.gpu_engine == "paged":
                raise
            log.warning("the readable engine serves, far slower: %s", error)
        torch.cuda.empty_cache()
    widest = settings.widest_step or (1 if device.type == "cpu" else 16)
    return Backend(
        Identity(
            directory.content_hash((*WEIGHTS, directory.yaml_name)),
            "torch",
            precision_text(flow.batch_invariant, widest),
            device_text(device, settings.threads),
        ),
        {
            Profile.CONTINUOUS: ContinuousDecoder(
                flow,
                vocoder,
                widest_step=widest,
                prompt_cache_bytes=settings.prompt_cache_bytes,
                ahead=BlocksAhead(flow) if device.type == "cpu" and core_to_spare(settings.threads) else None,
            ),
            Profile.UPSTREAM: UpstreamDecoder(flow, vocoder),
            Profile.OFFLINE: OfflineDecoder(flow, vocoder),
        },
        lambda: flow.stats.euler_steps,
    )


def _paged(
    directory: ModelDirectory, device: torch.device, settings: EngineSettings, flow: Flow, vocoder: Vocoder
) -> Backend:
    check_device(device)
    with kernels_compile():
        from services.token2wav.gpu.backend import load_paged  # needs Triton

    capability, hashed = (
        torch.cuda.get_device_capability(device),
        directory.content_hash((*WEIGHTS, directory.yaml_name)),
    )
    keep_kernels(
        Key(gpu=torch.cuda.get_device_name(device), capability=capability, torch=torch.__version__, model=hashed)
    )
    return load_paged(directory, device, settings, flow, vocoder)


def device_of(name: str) -> torch.device:
    """Raises SettingsError for a device that is not there."""
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise SettingsError(f"device {name!r} is not known; there are cpu, cuda and cuda:N")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def device_text(device: torch.device, threads: int) -> str:
    """What makes two devices round alike: the kernels, which come with torch, and what they run on.

    On a CPU that is the vector instructions that torch uses and the threads that share an
    operation.
    """
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()} {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}"


def precision_text(batch_invariant: bool, widest_step: int) -> str:
    """The number type, and whether streams of a step are rows of one batch: sums then round by the
    shape of the batch.
    """
    return "float32" if batch_invariant or widest_step == 1 else f"float32, batches of up to {widest_step} streams"


def paged_precision_text(precision: str, vocoder: str, widest_step: int) -> str:
    """The same of the paged engine, whose batches always decide how sums round."""
    operands = f" of {WINDOWED_OPERANDS[precision]}" if vocoder == "windowed" else ""
    return f"{precision}, paged, {vocoder} vocoder{operands}, batches of up to {widest_step} streams"
