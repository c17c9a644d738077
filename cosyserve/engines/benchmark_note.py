"""Which hosted engine was measured to be faster than our own on this host: written by `cosyserve
start --benchmark`, read by the ladder.

A note is a small file in the engine cache. Its name is the hash of all that the measurement depends
on: GPU, driver, model, precision of the engine and versions of the libraries. When one of them
changes, the note is not found, and our own engines serve until somebody measures again.
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

LLM, TOKEN2WAV = "llm", "token2wav"
HOSTED = {LLM: ("tensorrt_llm", "vllm"), TOKEN2WAV: ("tensorrt",)}
"""Engines of each service that `auto` tries only when a setting or a note names them."""
_MODEL = {LLM: ("llm.pt",), TOKEN2WAV: ("flow.pt", "hift.pt")}
_LIBRARIES = {LLM: ("torch", "triton", "tensorrt_llm", "vllm"), TOKEN2WAV: ("torch", "triton", *TENSORRT)}
_PREFIX = "fastest-"


@dataclass(frozen=True)
class Note:
    """engine: one of HOSTED, or empty where our own was faster. real_time_factors: what was
    measured, by configuration.
    """

    engine: str
    real_time_factors: Mapping[str, float]


def facts(service: str, model: Path, precision: str) -> dict[str, str]:
    """What a note of this service depends on, on this machine. precision: of token2wav's engines;
    empty for the LLM. Blocks while the checkpoints are hashed. Raises ModelError for a model
    directory without them."""
    gpus = visible_gpus()
    return {
        "service": service,
        "model": ModelDirectory(model).content_hash(_MODEL[service]),
        "precision": precision,
        **(gpus[0] if gpus else {}),
        **library_versions(*_LIBRARIES[service]),
    }


def noted(root: Path, service: str, model: Path | None, precision: str = "") -> str:
    """The hosted engine that was faster here, empty without one. root: of the engine cache. Blocks;
    the model is only read where there is a note of this service."""
    try:
        if model is None or not any(root.glob(f"{_PREFIX}{service}-*.json")):
            return ""
        told = facts(service, model, precision)
        note = json.loads(_file(root, told).read_text(encoding="utf-8"))
        engine = note["engine"]
        return engine if note["facts"] == told and engine in HOSTED[service] else ""
    except (OSError, ValueError, KeyError, TypeError, ModelError):
        return ""


def write(root: Path, told: Mapping[str, str], note: Note) -> Path:
    """Keep a note in place of an earlier one with the same facts; it appears whole. Raises
    OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"facts": dict(told), "engine": note.engine, "real_time_factors": dict(note.real_time_factors)}, indent=1
    )
    with tempfile.NamedTemporaryFile("w", dir=root, prefix=".fastest-", delete=False, encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    path = _file(root, told)
    Path(file.name).replace(path)
    return path


def _file(root: Path, told: Mapping[str, str]) -> Path:
    digest = hashlib.sha256(json.dumps(sorted(told.items())).encode()).hexdigest()[:16]
    return root / f"{_PREFIX}{told['service']}-{digest}.json"
