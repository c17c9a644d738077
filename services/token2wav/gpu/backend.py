"""Assembles the paged engine: a page pool of the budgeted size, and CUDA graphs of every batch size
recorded before the first request.
"""

import logging
import time
from typing import Any

import torch
import triton

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.start_phases import phase
from cosyserve.generations.prompt_cut import audible_first_hop
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.engine_identity import (
    WEIGHTS,
    WINDOWED_OPERANDS,
    device_text,
    paged_precision_text,
)
from services.token2wav.decoders.kept_hops import KeptHopsDecoder
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.loading import network_files
from services.token2wav.flow.past import REFERENCE_CUT
from services.token2wav.gpu.decoder import PagedDecoder
from services.token2wav.gpu.device.suitability import kernels_compile, pages_within, reporting_out_of_memory
from services.token2wav.gpu.paged_flow.flow import PagedFlow
from services.token2wav.gpu.paged_flow.kept_numbers import KEPT_NUMBERS
from services.token2wav.gpu.paged_flow.networks import paged_network
from services.token2wav.gpu.windowed_vocoder.loading import load_windowed
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.inputs.request import Profile
from services.token2wav.vocoder.vocoder import Vocoder

SLOTS = 1024
"""Streams whose mel and phase the vocoder can hold; 41 KB each."""
LONGEST_RECOMPUTED = 128
"""Maximum number of blocks of a sentence, prompt included, that can be recomputed if no pages are
left: 128 seconds.
"""
log = logging.getLogger(__name__)


def load_paged(
    directory: ModelDirectory, device: torch.device, settings: EngineSettings, flow: Flow, vocoder: Vocoder
) -> Backend:
    """The continuous profile runs on pages and graphs; the upstream and offline profiles run on
    `flow` and `vocoder`.

    The device has passed `suitability.check_device`. Raises SettingsError for a budget that holds
    less than two seconds of audio or does not fit into the device's memory next to the engine
    itself, Unsuitable if the kernels cannot be compiled, or if there are none for the model's flow
    or vocoder.
    """
    paged_parts, files = paged_network(directory), network_files(directory)
    dtype: torch.dtype = getattr(torch, settings.gpu_precision)
    config, budget = files.config(directory), settings.state_bytes + settings.prompt_cache_bytes
    kept = KEPT_NUMBERS[settings.gpu_kv_precision]
    page = paged_parts.layout(config, True, kept.ratio(dtype)).elements * dtype.itemsize
    pages = 1 + pages_within(budget, page, device)
    began = time.perf_counter()
    continuous_vocoder: WindowedVocoder | Vocoder = vocoder
    with reporting_out_of_memory(budget, device), kernels_compile():
        with phase("pages and weights of the flow"):
            tensors = files.tensors(directory, config, device, torch.float32)
            paged = PagedFlow(
                paged_parts, config, tensors, pages=pages, dtype=dtype, most=LONGEST_RECOMPUTED, kept=kept,
                clusters=settings.gpu_clusters == "auto",
            )  # fmt: skip
            del tensors
        if settings.gpu_vocoder == "windowed":
            with phase("kernels and graphs of the vocoder"):
                continuous_vocoder = _windowed(directory, device, paged, WINDOWED_OPERANDS[settings.gpu_precision])
        with phase("kernels and graphs of the flow"):
            paged.capture()
    log.info(
        "token2wav: %d pages of %d bytes, graphs recorded after %.1f s",
        pages - 1,
        paged.page_bytes,
        time.perf_counter() - began,
    )
    widest, prompt_pages = settings.widest_step or paged.buckets[-1], settings.prompt_cache_bytes // paged.page_bytes
    decoder = PagedDecoder(
        paged, continuous_vocoder, pages=pages, slots=SLOTS, widest_step=widest, prompt_pages=prompt_pages,
        fronts=paged.fronts,
    )  # fmt: skip
    whole_hop = WholeHopDecoder(flow, vocoder)
    return Backend(
        Identity(
            directory.content_hash((*WEIGHTS, directory.yaml_name)),
            "torch",
            paged_precision_text(
                settings.gpu_precision,
                settings.gpu_vocoder,
                widest,
                settings.gpu_kv_precision,
                paged.clustered_units,
            ),
            f"{device_text(device, settings.threads)}, triton {triton.__version__}",
        ),
        {
            Profile.CONTINUOUS: decoder,
            Profile.UPSTREAM: KeptHopsDecoder(flow, vocoder, REFERENCE_CUT) if flow.past.whole_prompt else whole_hop,
            Profile.OFFLINE: whole_hop,
        },
        lambda: flow.euler_steps + paged.euler_steps,
        buckets=paged.buckets,
        first_hop_tokens=0 if flow.past.whole_prompt else audible_first_hop(generation_of(directory)),
    )


def _windowed(
    directory: ModelDirectory, device: torch.device, paged: PagedFlow[Any], precision: str
) -> WindowedVocoder:
    vocoder = load_windowed(directory, device, slots=SLOTS, precision=precision, launch=paged.launch)
    vocoder.capture()
    return vocoder
