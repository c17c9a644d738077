"""Which hosted engine was measured to be faster than our own on this host: `cosyserve start
--benchmark` writes the note, the services read it when they choose an engine.

A note is a small file in the engine cache. Its name is the hash of all that the measurement depends
on: GPU, driver, model, precision of the engine and versions of the libraries. When one of them
changes, no note matches, and our own engines serve until the next measurement.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.gpu_facts import TENSORRT, library_versions, visible_gpus
from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory

_PREFIX = "fastest-"


@dataclass(frozen=True)
class NotedService:
    """A service of which engines of other libraries are compared with our own."""

    name: str
    hosted: tuple[str, ...]
    """Engines of other libraries: `auto` tries them only if a setting or a note names them."""
    weight_files: tuple[str, ...]
    """Files of the model directory that decide what is measured."""
    libraries: tuple[str, ...]
    """Distributions whose version decides what is measured."""


LLM = NotedService("llm", ("tensorrt_llm", "vllm"), ("llm.pt",), ("torch", "triton", "tensorrt_llm", "vllm"))
TOKEN2WAV = NotedService("token2wav", ("tensorrt",), ("flow.pt", "hift.pt"), ("torch", "triton", *TENSORRT))


def facts(service: NotedService, model: Path, precision: str) -> dict[str, str]:
    """What a note of this service depends on, on this machine. precision: of the engines, empty if
    a service has only one. Blocks while the checkpoints are hashed. Raises ModelError for a model
    directory without them.
    """
    gpus = visible_gpus()
    return {
        "service": service.name,
        "model": ModelDirectory(model).content_hash(service.weight_files),
        "precision": precision,
        **(gpus[0] if gpus else {}),
        **library_versions(*service.libraries),
    }


def read_note(root: Path, service: NotedService, model: Path | None, precision: str = "") -> str:
    """The hosted engine that was faster here; empty if there is no note, or our own was faster.
    root: of the engine cache. Blocks; the model is read only if there is a note of this service.
    """
    try:
        if model is None or not any(root.glob(f"{_PREFIX}{service.name}-*.json")):
            return ""
        current = facts(service, model, precision)
        note = json.loads(_file(root, current).read_text(encoding="utf-8"))
        engine = note["engine"]
        return engine if note["facts"] == current and engine in service.hosted else ""
    except (OSError, ValueError, KeyError, TypeError, ModelError):
        return ""


def write(root: Path, facts: Mapping[str, str], engine: str, real_time_factors: Mapping[str, float]) -> Path:
    """Write a note atomically, in place of an earlier one with the same facts. Raises OSError.

    engine: one of the service's hosted engines; empty if our own was faster. real_time_factors:
    measured, by configuration.
    """
    root.mkdir(parents=True, exist_ok=True)
    note = {"facts": dict(facts), "engine": engine, "real_time_factors": dict(real_time_factors)}
    with tempfile.NamedTemporaryFile("w", dir=root, prefix=".fastest-", delete=False, encoding="utf-8") as file:
        file.write(json.dumps(note, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    path = _file(root, facts)
    Path(file.name).replace(path)
    return path


def _file(root: Path, facts: Mapping[str, str]) -> Path:
    digest = hashlib.sha256(json.dumps(sorted(facts.items())).encode()).hexdigest()[:16]
    return root / f"{_PREFIX}{facts['service']}-{digest}.json"
