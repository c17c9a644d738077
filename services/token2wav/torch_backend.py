"""The torch backend: the model in PyTorch, for all three profiles."""

import logging

import torch

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.kernel_cache import Key, Unsuitable, keep_kernels
from cosyserve.engines.start_phases import phase
from cosyserve.errors import SettingsError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.continuous_state import BlocksAhead, core_to_spare
from services.token2wav.decoders.engine_identity import WEIGHTS, device_of, device_text, precision_text
from services.token2wav.decoders.kept_hops import KeptHopsDecoder
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.past import REFERENCE_CUT
from services.token2wav.gpu.device.suitability import check_device, kernels_compile
from services.token2wav.inputs.request import Profile
from services.token2wav.vocoder.compiled_kernels import keep_compiled_kernels
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.vocoder import Vocoder

log = logging.getLogger(__name__)
GPU_CHOICES = {
    "gpu_engine": ("auto", "paged", "readable"),
    "gpu_precision": ("bfloat16", "float32"),
    "gpu_kv_precision": ("operands", "int8", "float8"),
    "gpu_vocoder": ("readable", "windowed"),
    "gpu_clusters": ("auto", "off"),
}


def load_torch(directory: ModelDirectory, settings: EngineSettings) -> Backend:
    """Load flow and vocoder of `directory` on the chosen device and set the process's number of
    CPU threads, and how many kernels for a CPU it keeps.

    Raises ModelError naming file and tensor, SettingsError for a device or option that does not
    exist or cannot be used.
    """
    for name, choices in GPU_CHOICES.items():
        if getattr(settings, name) not in choices:
            raise SettingsError(f"{name} {getattr(settings, name)!r} is not known; there are {', '.join(choices)}")
    device = device_of(settings.device)
    torch.set_num_threads(settings.threads)
    keep_compiled_kernels()
    directory.begin_hash((*WEIGHTS, directory.yaml_name))
    with phase("reading weights"):
        flow, vocoder = load_flow(directory, device), load_vocoder(directory, device)
        # The solver has computed them for all its steps.
        flow.estimator.forget_times()
    if device.type == "cuda" and settings.gpu_engine != "readable":
        try:
            return _paged(directory, device, settings, flow, vocoder)
        except Unsuitable as error:
            if settings.gpu_engine == "paged":
                raise
            log.warning("falling back to the readable engine, which is far slower: %s", error)
        torch.cuda.empty_cache()
    widest = settings.widest_step or (1 if device.type == "cpu" else 16)
    whole_hop = WholeHopDecoder(flow, vocoder)
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
            Profile.UPSTREAM: KeptHopsDecoder(flow, vocoder, REFERENCE_CUT) if flow.past.whole_prompt else whole_hop,
            Profile.OFFLINE: whole_hop,
        },
        lambda: flow.euler_steps,
    )


def _paged(
    directory: ModelDirectory, device: torch.device, settings: EngineSettings, flow: Flow, vocoder: Vocoder
) -> Backend:
    check_device(device)
    with kernels_compile():
        from services.token2wav.gpu.backend import load_paged  # needs Triton

    keep_kernels(Key(gpu=torch.cuda.get_device_name(device), capability=torch.cuda.get_device_capability(device)))
    return load_paged(directory, device, settings, flow, vocoder)
