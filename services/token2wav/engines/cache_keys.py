"""The cache keys of a model's graphs and plans; tools that write the cache and the service that
reads it share them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cosyserve.engines.engine_cache import EngineKey

if TYPE_CHECKING:
    from services.token2wav.engines.shapes import Profile  # knows tensors

GRAPHS = "token2wav.graphs"
COMPONENTS = ("encoder", "estimator", "pitch", "filter")
WRITER = "1"
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
    with file.open("rb") as stream:
        return f"{PUBLISHED} {hashlib.file_digest(stream, 'sha256').hexdigest()[:16]}"


def graphs_key(model_hash: str, precision: str, estimator: str = OWN) -> EngineKey:
    """precision: of the estimator. estimator: `own`, or the result of `published_estimator`."""
    return EngineKey(GRAPHS, {"model": model_hash, "precision": precision, "estimator": estimator, "writer": WRITER})


def plan_key(
    component: str,
    graphs: EngineKey,
    machine: Mapping[str, str],
    profiles: Sequence["Profile"],
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
