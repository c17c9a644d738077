"""The paged engine put together: pool by the budget, graphs of every batch size recorded before the first caller."""

import logging
import time

import torch

from cosyserve.errors import SettingsError
from cosyserve.identity import Identity
from cosyserve.model_directory import ModelDirectory
from services.token2wav.backend import Backend, EngineSettings
from services.token2wav.flow.checkpoint import read_flow_tensors
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.weights import FlowConfig
from services.token2wav.gpu.decoder import PagedDecoder
from services.token2wav.gpu.flow import PagedFlow
from services.token2wav.gpu.layout import Layout
from services.token2wav.gpu.vocoder import WindowedVocoder
from services.token2wav.offline import OfflineDecoder
from services.token2wav.request import Profile
from services.token2wav.upstream import UpstreamDecoder
from services.token2wav.vocoder.config import read_config
from services.token2wav.vocoder.vocoder import Vocoder
from services.token2wav.vocoder.weights import load_weights

PRECISIONS = {"bfloat16": torch.bfloat16, "float32": torch.float32}
VOCODERS = ("readable", "windowed")
SLOTS = 1024
"""Streams whose mel and phase the vocoder remembers; 41 KB each."""
LONGEST_RECOMPUTED = 128
"""Blocks of a sentence, its prompt included, that can be made again where there is no room to keep them: 128 seconds."""
log = logging.getLogger(__name__)


def load_paged(directory: ModelDirectory, device: torch.device, settings: EngineSettings, flow: Flow, vocoder: Vocoder) -> Backend:
    """Streams go through pages and graphs, `upstream` and offline sentences through `flow` and `vocoder`.

    Raises SettingsError for a precision that is not known and a budget that does not hold two seconds of sound or exceeds the device.
    """
    dtype = PRECISIONS.get(settings.gpu_precision)
    if dtype is None:
        raise SettingsError(f"gpu_precision {settings.gpu_precision!r} is not known; there are {', '.join(PRECISIONS)}")
    if settings.gpu_vocoder not in VOCODERS:
        raise SettingsError(f"gpu_vocoder {settings.gpu_vocoder!r} is not known; there are {', '.join(VOCODERS)}")
    config = FlowConfig.read(directory)
    pages = 1 + _pages(config, dtype, settings.state_bytes + settings.prompt_cache_bytes, device)
    began = time.perf_counter()
    tensors = read_flow_tensors(directory, config, device, torch.float32)
    paged = PagedFlow(config, tensors, pages=pages, dtype=dtype, most=LONGEST_RECOMPUTED)
    sounding: WindowedVocoder | Vocoder = vocoder
    if settings.gpu_vocoder == "windowed":
        sounding = _windowed(directory, device, paged, dtype)
    paged.capture()
    log.info("token2wav: %d pages of %d bytes, graphs recorded after %.1f s", pages - 1, paged.page_bytes, time.perf_counter() - began)
    decoder = PagedDecoder(
        paged, sounding, pages=pages, slots=SLOTS, widest_step=settings.widest_step or paged.buckets[-1],
        prompt_pages=settings.prompt_cache_bytes // paged.page_bytes,
    )  # fmt: skip
    return Backend(
        Identity(
            directory.content_hash(("flow.pt", "hift.pt", directory.yaml_name)),
            "torch",
            f"{settings.gpu_precision}, paged, {settings.gpu_vocoder} vocoder",
            f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}",
        ),
        {Profile.CONTINUOUS: decoder, Profile.UPSTREAM: UpstreamDecoder(flow, vocoder), Profile.OFFLINE: OfflineDecoder(flow, vocoder)},
        lambda: flow.stats.euler_steps + paged.stats.euler_steps,
    )


def _windowed(directory: ModelDirectory, device: torch.device, paged: PagedFlow, dtype: torch.dtype) -> WindowedVocoder:
    config, precision = read_config(directory), "tf32" if dtype == torch.bfloat16 else "ieee"
    made = WindowedVocoder(config, load_weights(directory, config), device, slots=SLOTS, precision=precision, launch=paged.launch)
    made.capture()
    return made


def _pages(config: FlowConfig, dtype: torch.dtype, budget: int, device: torch.device) -> int:
    one = Layout(config).elements * dtype.itemsize
    free, _ = torch.cuda.mem_get_info(device)
    if budget > free:
        raise SettingsError(f"state_bytes and prompt_cache_bytes are {budget} together; {device} has {free} free")
    if budget < 2 * one:
        raise SettingsError(f"state_bytes and prompt_cache_bytes are {budget} together; a second of sound takes {one}, two are the least")
    return budget // one
