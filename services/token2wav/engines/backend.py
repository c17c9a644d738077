"""Engines from the cache, put behind the three profiles. Nothing is built here: what is missing is named with the command that makes it."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from cosyserve.engine_cache import Engine as CachedEngine
from cosyserve.engine_cache import EngineCache, EngineKey, default_directory
from cosyserve.errors import ModelError, SettingsError
from cosyserve.identity import Identity
from cosyserve.model_directory import ModelDirectory
from services.token2wav.backend import Backend, EngineSettings
from services.token2wav.checkpoint import read_tensors
from services.token2wav.decoder import Decoder
from services.token2wav.engines.continuous import PrefixDecoder
from services.token2wav.engines.flow import EngineFlow
from services.token2wav.engines.full_attention import NotOffered
from services.token2wav.engines.keys import COMPATIBILITIES, COMPONENTS, OWN, PRECISIONS, PUBLISHED, graph_file, graphs_key
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import Profile as Built
from services.token2wav.engines.shapes import profiles
from services.token2wav.engines.slots import Slots
from services.token2wav.engines.sound import EngineFilter, EnginePitch
from services.token2wav.flow.layers import Linear
from services.token2wav.flow.weights import FlowConfig
from services.token2wav.offline import OfflineDecoder
from services.token2wav.request import Profile
from services.token2wav.torch_backend import WEIGHTS, device_of, device_text
from services.token2wav.upstream import UpstreamDecoder
from services.token2wav.vocoder.vocoder import load_vocoder

Load = Callable[[str, CachedEngine, Sequence[Built]], Engine]
"""Component, the cached graphs, the profiles that it is asked for -> the engine."""
log = logging.getLogger(__name__)


def load_onnx(model: Path, settings: EngineSettings) -> Backend:
    """The exported graphs by ONNX Runtime. Raises SettingsError without the library, ModelError without graphs of this model."""
    device = device_of(settings.device)
    from services.token2wav.engines.onnx_runtime import OnnxEngine, onnx_library

    version = onnx_library().__version__

    def load(component: str, graphs: CachedEngine, built: Sequence[Built]) -> Engine:
        return OnnxEngine(component, graphs.file(graph_file(component)), device, settings.threads, built)

    return assemble(model, settings, device, "onnxruntime", load, f", onnxruntime {version}")


def assemble(model: Path, settings: EngineSettings, device: torch.device, runtime: str, load: Load, rounding: str = "") -> Backend:
    """The three profiles over engines that `load` gives. rounding: what beside precision and batch decides it, for the identity.

    Raises SettingsError and ModelError as `load_backend`.
    """
    check_choices(settings)
    torch.set_num_threads(settings.threads)
    directory = ModelDirectory(model)
    model_hash = directory.content_hash((*WEIGHTS, directory.yaml_name))
    graphs = found_graphs(engine_cache(settings), graphs_key(model_hash, settings.engine_precision, settings.engine_estimator), model)
    config, masked = FlowConfig.read(directory), settings.engine_estimator == OWN
    streams = settings.widest_step or (1 if device.type == "cpu" else 16)
    engines = {
        component: load(component, graphs, profiles(component, streams, config.encoder_width, masked=masked)) for component in COMPONENTS
    }
    slots = Slots(device, settings.engine_contexts)
    flow = EngineFlow(config, engines["encoder"], engines["estimator"], _speaker(directory, device), slots, device, streams)
    vocoder = load_vocoder(directory, device)
    # Called in two places only, and with these two signatures.
    vocoder.f0 = EnginePitch(engines["pitch"], slots)  # type: ignore[assignment]
    vocoder.filter = EngineFilter(vocoder.config, engines["filter"], slots)  # type: ignore[assignment]
    offered = flow.masked
    continuous: Decoder[Any] = PrefixDecoder(flow, vocoder, widest_step=streams, slots=slots.count) if offered else NotOffered()
    if not offered:
        log.warning("%s: the published estimator has full attention only; PROFILE_CONTINUOUS is refused", model)
    attention = "" if offered else ", full attention only"
    precision = f"{settings.engine_precision} estimator{attention}, prefixes recomputed, batches of up to {flow.batch} streams{rounding}"
    return Backend(
        Identity(model_hash, runtime, precision, device_text(device, settings.threads)),
        {
            Profile.CONTINUOUS: continuous,
            Profile.UPSTREAM: UpstreamDecoder(flow, vocoder),
            Profile.OFFLINE: OfflineDecoder(flow, vocoder),
        },
        lambda: flow.stats.euler_steps,
        warm_up_profile=Profile.CONTINUOUS if offered else Profile.OFFLINE,
    )


def check_choices(settings: EngineSettings) -> None:
    """Raise SettingsError for a precision, estimator or number of contexts that is not there."""
    for name, choices in (
        ("engine_precision", PRECISIONS),
        ("engine_estimator", (OWN, PUBLISHED)),
        ("engine_compatibility", COMPATIBILITIES),
    ):
        if getattr(settings, name) not in choices:
            raise SettingsError(f"{name} {getattr(settings, name)!r} is not known; there are {', '.join(choices)}")
    if not 1 <= settings.engine_contexts <= 64:
        raise SettingsError(f"engine_contexts is {settings.engine_contexts}; 1 to 64 is allowed")


def engine_cache(settings: EngineSettings) -> EngineCache:
    """Where the settings say, else where the tools write."""
    return EngineCache(settings.engines or default_directory(), on_wait=log.info)


def found_graphs(cache: EngineCache, key: EngineKey, model: Path) -> CachedEngine:
    """Raises ModelError saying why what is there cannot be used, and the command that makes what is needed."""
    return found(
        cache,
        key,
        f"cosyserve model export {model} --precision {key.facts['precision']}"
        + (f" --published {model}/flow.decoder.estimator.fp32.onnx" if key.facts["estimator"] == PUBLISHED else ""),
    )


def found(cache: EngineCache, key: EngineKey, command: str) -> CachedEngine:
    """The entry of `key`. Raises ModelError with the reasons and `command` when there is none that may be loaded."""
    entry = cache.find(key)
    if isinstance(entry, CachedEngine):
        return entry
    if entry is not None:
        why = f"{entry.directory}: {entry.reason}"
    else:
        others = "; ".join(f"{other.directory.name}: {other.reason}" for other in cache.refused(key)[:3])
        why = f"{cache.root}: no {key.component} for this model and machine" + (f" ({others})" if others else "")
    raise ModelError(f"{why}; make it with: {command}")


def _speaker(directory: ModelDirectory, device: torch.device) -> Linear:
    """The one map of the flow that is in no graph."""
    tensors = read_tensors(directory.file("flow.pt"))
    try:
        weight, bias = (tensors[f"spk_embed_affine_layer.{kind}"].to(device, torch.float32).clone() for kind in ("weight", "bias"))
    except KeyError as error:
        raise ModelError(f"{directory.path}/flow.pt: missing tensor {error.args[0]}") from error
    return Linear(weight, bias)
