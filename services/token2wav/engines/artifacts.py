"""Graphs and plans that the tools built and the service loads: their cache keys, which both share,
and how the service looks them up in the engine cache and locks them while it runs. If one is
missing, the error names the command that builds it; nothing is built here.
"""

import contextlib
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cosyserve.engines.engine_cache import Engine, EngineCache, EngineKey, default_directory, sha256_of
from cosyserve.errors import ModelError
from cosyserve.file_lock import shared_engine_lock
from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import EngineSettings

if TYPE_CHECKING:
    from services.token2wav.engines.shapes import Profile  # knows tensors


GRAPHS = "token2wav.graphs"
WRITER = "2"
"""Version of the graphs: changed whenever the same weights give a different graph."""
OWN, PUBLISHED = "own", "published"
PUBLISHED_FILE = "flow.decoder.estimator.fp32.onnx"
NO_COMPATIBILITY, HARDWARE, VERSION = "none", "hardware", "version"
COMPATIBILITIES = (NO_COMPATIBILITY, HARDWARE, VERSION, f"{HARDWARE}+{VERSION}")
"""Plans for this machine only, for GPUs from Ampere on, for every TensorRT with the same major
version, or both; compatible plans are slower.
"""
PRECISIONS = ("fp32", "fp16", "bf16", "fp8")


def graph_file(component: str) -> str:
    return f"{component}.onnx"


def plan_file(component: str) -> str:
    return f"{component}.plan"


def published_estimator(file: Path) -> str:
    """The published estimator as part of a key, because no model hash covers its file. Raises
    OSError.
    """
    return f"{PUBLISHED} {sha256_of(file)[:16]}"


def graphs_key(model_hash: str, precision: str, estimator: str = OWN) -> EngineKey:
    """precision: of the estimator. estimator: `own`, or the result of `published_estimator`."""
    return EngineKey(GRAPHS, {"model": model_hash, "precision": precision, "estimator": estimator, "writer": WRITER})


def plan_key(
    component: str,
    graphs: EngineKey,
    machine: Mapping[str, str],
    profiles: "Sequence[Profile]",
    compatibility: str = NO_COMPATIBILITY,
) -> EngineKey:
    """machine: gpu, compute_capability, tensorrt, driver. compatibility: one of COMPATIBILITIES;
    facts that a compatible plan does not depend on are left out of the key.
    """
    facts = dict(graphs.facts) | dict(machine)
    facts |= {"profile": " | ".join(profile.text for profile in profiles), "compatibility": compatibility}
    if HARDWARE in compatibility:
        facts |= dict.fromkeys(("gpu", "compute_capability", "driver"), "any")
    if VERSION in compatibility:
        facts |= {"tensorrt": f"{machine['tensorrt'].partition('.')[0]}.x", "driver": "any"}
    return EngineKey(f"token2wav.{component}", facts)


log = logging.getLogger(__name__)


class CachedEngines:
    """The engine cache's entries for one model.

    graphs: those of the model with the precision and estimator of the settings. locks: entries that
    are returned stay locked until this is closed. Raises ModelError if there are no graphs that may
    be loaded.
    """

    def __init__(
        self, model: Path, model_hash: str, settings: EngineSettings, streams: int, locks: contextlib.ExitStack
    ) -> None:
        self._model, self._settings, self._streams, self._locks = model, settings, streams, locks
        self._cache = EngineCache(settings.engines or default_directory(), on_wait=log.info)
        key = graphs_key(model_hash, settings.engine_precision, self._estimator())
        self.graphs = self._find(key, export_command(model, *self._export_options()))

    def plan(self, component: str, machine: Mapping[str, str], built: "Sequence[Profile]") -> Engine:
        """The plan of a graph for this machine and these profiles. Raises ModelError if there is
        none that may be loaded.
        """
        settings, streams = self._settings, self._streams
        compatibility = settings.engine_compatibility
        command = build_command(
            self._model, *self._export_options(), streams=streams, compatibility=compatibility, device=settings.device
        )
        return self._find(plan_key(component, self.graphs.key, machine, built, compatibility), command)

    def _estimator(self) -> str:
        if self._settings.engine_estimator != PUBLISHED:
            return OWN
        file = ModelDirectory(self._model).path / PUBLISHED_FILE
        if not file.is_file():
            fetch = shlex.join(["cosyserve", "model", "download", str(self._model), "--with-published-onnx"])
            raise ModelError(f"{file}: missing; engine_estimator {PUBLISHED} needs it: {fetch}")
        return published_estimator(file)

    def _export_options(self) -> tuple[str, Path | None, Path | None]:
        """Options that export and build share: precision, the published estimator's file, the
        cache.
        """
        settings = self._settings
        return (
            settings.engine_precision,
            self._model / PUBLISHED_FILE if settings.engine_estimator == PUBLISHED else None,
            settings.engines,
        )

    def _find(self, key: EngineKey, command: str) -> Engine:
        # Locked first, so that the entry that is checked is the entry that is loaded. If the lock
        # fails, the check below finds the reason.
        with contextlib.suppress(OSError):
            self._locks.enter_context(shared_engine_lock(self._cache.root / key.directory_name))
        entry = self._cache.find(key)
        if isinstance(entry, Engine):
            return entry
        if entry is not None:
            why = f"{entry.directory}: {entry.reason}"
        else:
            others = "; ".join(f"{other.directory.name}: {other.reason}" for other in self._cache.refused(key)[:3])
            why = f"{self._cache.root}: no {key.component} for this model and machine" + (
                f" ({others})" if others else ""
            )
        raise ModelError(f"{why}; make it with: {command}")


def export_command(model: Path, precision: str, published: Path | None, engines: Path | None) -> str:
    """The command that exports the graphs. published: the estimator's file if it is not our own.
    engines: directory of the cache, None: the default.
    """
    return _command("export", model, _graphs(precision, published, engines))


def build_command(
    model: Path,
    precision: str,
    published: Path | None,
    engines: Path | None,
    *,
    streams: int,
    compatibility: str,
    device: str,
) -> str:
    """The command that builds the plans. In addition to the options of `export_command`: maximum
    streams in a batch, one of COMPATIBILITIES, and the GPU.
    """
    options = ["--streams", str(streams)]
    options += [] if compatibility == NO_COMPATIBILITY else ["--compatibility", compatibility]
    options += [] if device == "cuda" else ["--device", device]
    return _command("build token2wav", model, [*_graphs(precision, published, engines), *options])


def _graphs(precision: str, published: Path | None, engines: Path | None) -> list[str]:
    options = ["--precision", precision]
    options += [] if published is None else ["--published", str(published)]
    return options + ([] if engines is None else ["--engines", str(engines)])


def _command(step: str, model: Path, options: list[str]) -> str:
    return shlex.join(["cosyserve", "model", *step.split(), str(model), *options])
