"""Assembles the three profiles over engines from the cache."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cosyserve.engines.compatibility import Identity
from cosyserve.errors import ModelError, SettingsError
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, Decoders, EngineSettings
from services.token2wav.decoders.engine_identity import WEIGHTS, device_of, device_text
from services.token2wav.decoders.interface import Decoder
from services.token2wav.decoders.whole_hop import WholeHopDecoder
from services.token2wav.engines.artifacts import COMPATIBILITIES, OWN, PRECISIONS, PUBLISHED, CachedEngines, graph_file
from services.token2wav.engines.chunks.network import chunk_decoders, chunk_flow
from services.token2wav.engines.flow import EngineFlow
from services.token2wav.engines.model_profiles import model_profiles
from services.token2wav.engines.prefix_decoder import PrefixDecoder, RefusingDecoder
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import Profile as Built
from services.token2wav.engines.slots import Slots
from services.token2wav.engines.vocoder import CausalEngineFilter, CausalEnginePitch, EngineFilter, EnginePitch
from services.token2wav.flow.layers import Linear
from services.token2wav.flow.loading import network_files
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.inputs.model_files import read_tensors
from services.token2wav.inputs.request import Profile
from services.token2wav.vocoder.causal.vocoder import CausalVocoder
from services.token2wav.vocoder.hift_vocoder import HiftVocoder
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.vocoder import Vocoder

Load = Callable[[str, CachedEngines, Sequence[Built]], Engine]
"""Component, entries of the cache, and the profiles that the component must support -> the
engine.
"""
log = logging.getLogger(__name__)


def load_onnx(model: Path, settings: EngineSettings) -> Backend:
    """Run the exported graphs with ONNX Runtime. Raises SettingsError without the library,
    ModelError without graphs of this model.
    """
    device = device_of(settings.device)
    from services.token2wav.engines.onnx_runtime import OnnxEngine, onnx_library

    version = onnx_library().__version__

    def load(component: str, stored: CachedEngines, built: Sequence[Built]) -> Engine:
        return OnnxEngine(component, stored.graphs.file(graph_file(component)), device, settings.threads, built)

    return assemble(model, settings, device, "onnxruntime", load, f", onnxruntime {version}")


def assemble(
    model: Path, settings: EngineSettings, device: torch.device, runtime: str, load: Load, rounding_facts: str = ""
) -> Backend:
    """The three profiles over the engines that `load` returns. rounding_facts: what affects
    rounding in addition to precision and batch size, for the identity.

    Raises SettingsError and ModelError as `load_backend` does.
    """
    check_choices(settings)
    torch.set_num_threads(settings.threads)
    directory = ModelDirectory(model)
    model_hash = directory.content_hash((*WEIGHTS, directory.yaml_name))
    config = network_files(directory).config(directory)
    if isinstance(config, StepDitConfig):
        check_chunk_choices(settings)
    streams = settings.widest_step or (1 if device.type == "cpu" else 16)
    with contextlib.ExitStack() as locks:
        stored = CachedEngines(model, model_hash, settings, streams, locks)
        built = model_profiles(directory, streams, masked=settings.engine_estimator == OWN)
        engines = {component: load(component, stored, shapes) for component, shapes in built.items()}
        slots = Slots(device, settings.engine_contexts)
        vocoder = load_vocoder(directory, device)
        replace_networks(vocoder, engines, slots)
        if isinstance(config, StepDitConfig):
            kept = chunk_flow(directory, config, engines, slots, device, streams)
            served = _Served(
                chunk_decoders(kept, vocoder, settings, streams),
                lambda: kept.euler_steps,
                f", state kept, batches of up to {1 if kept.batch_invariant else streams} streams",
            )
        else:
            flow = EngineFlow(
                config, engines["encoder"], engines["estimator"], _speaker(directory, device), slots, device, streams
            )
            served = _recomputing(flow, vocoder, model, stored, streams)
        release = locks.pop_all().close
    precision = f"{settings.engine_precision} estimator{served.precision}{rounding_facts}"
    return Backend(
        Identity(model_hash, runtime, precision, device_text(device, settings.threads)),
        served.decoders,
        served.euler_steps,
        warm_up_profile=served.warm_up_profile,
        release=release,
    )


@dataclass(frozen=True)
class _Served:
    """See `Backend`. precision: what of the flow affects rounding."""

    decoders: Decoders
    euler_steps: Callable[[], int]
    precision: str
    warm_up_profile: Profile = Profile.CONTINUOUS


def _recomputing(flow: EngineFlow, vocoder: Vocoder, model: Path, stored: CachedEngines, streams: int) -> _Served:
    """Of a flow that computes prefixes again."""
    continuous: Decoder[Any] = (
        PrefixDecoder(flow, vocoder, widest_step=streams, slots=flow.slots.count) if flow.masked else RefusingDecoder()
    )
    if not flow.masked:
        log.warning("%s: the published estimator has full attention only; PROFILE_CONTINUOUS is refused", model)
    attention = "" if flow.masked else f", {stored.graphs.key.facts['estimator']}, full attention only"
    whole_hop = WholeHopDecoder(flow, vocoder)
    return _Served(
        {Profile.CONTINUOUS: continuous, Profile.UPSTREAM: whole_hop, Profile.OFFLINE: whole_hop},
        lambda: flow.euler_steps,
        f"{attention}, prefixes recomputed, batches of up to {flow.batch} streams",
        Profile.CONTINUOUS if flow.masked else Profile.OFFLINE,
    )


def check_choices(settings: EngineSettings) -> None:
    """Raise SettingsError for a precision, estimator, compatibility or number of contexts that is
    not supported.
    """
    for name, choices in (
        ("engine_precision", PRECISIONS),
        ("engine_estimator", (OWN, PUBLISHED)),
        ("engine_compatibility", COMPATIBILITIES),
    ):
        if getattr(settings, name) not in choices:
            raise SettingsError(f"{name} {getattr(settings, name)!r} is not known; there are {', '.join(choices)}")
    if not 1 <= settings.engine_contexts <= 64:
        raise SettingsError(f"engine_contexts is {settings.engine_contexts}; 1 to 64 is allowed")


def check_chunk_choices(settings: EngineSettings) -> None:
    """Raise SettingsError for what the graphs of a flow with kept state do not have."""
    if settings.engine_precision == "fp8":
        raise SettingsError(
            "engine_precision is 'fp8'; the flow of Step-Audio2 has no scales for 8-bit products, fp32, fp16 and bf16 "
            "are allowed"
        )
    if settings.engine_estimator != OWN:
        raise SettingsError(
            f"engine_estimator is {settings.engine_estimator!r}; no estimator is published with Step-Audio2's flow, "
            f"only {OWN} is allowed"
        )


def _speaker(directory: ModelDirectory, device: torch.device) -> Linear:
    """The only map of the flow that is in no graph."""
    tensors = read_tensors(directory.file("flow.pt"))
    try:
        weight, bias = (
            tensors[f"spk_embed_affine_layer.{kind}"].to(device, torch.float32).clone() for kind in ("weight", "bias")
        )
    except KeyError as error:
        raise ModelError(f"{directory.path}/flow.pt: missing tensor {error.args[0]}") from error
    return Linear(weight, bias)


def replace_networks(vocoder: Vocoder, engines: Mapping[str, Engine], slots: Slots) -> None:
    """Have `vocoder` compute pitch and filter by `engines`, by component; it uses only the members
    of its networks that the engines' classes implement. Raises TypeError for one whose networks
    have no engines.
    """
    if isinstance(vocoder, HiftVocoder):
        vocoder.f0 = EnginePitch(engines["pitch"], slots)  # type: ignore[assignment]
        vocoder.filter = EngineFilter(vocoder.config, engines["filter"], slots)  # type: ignore[assignment]
    elif isinstance(vocoder, CausalVocoder):
        vocoder.f0 = CausalEnginePitch(vocoder.config, engines["pitch"], slots)  # type: ignore[assignment]
        vocoder.filter = CausalEngineFilter(vocoder.config, engines["filter"], slots)  # type: ignore[assignment]
    else:
        raise TypeError(f"the networks of {type(vocoder).__name__} have no engines")
