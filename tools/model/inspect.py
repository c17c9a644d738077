"""`python -m tools.model.inspect DIR`: what a model directory, or a conversion of one, holds and
what serving it needs.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyserve.engines.engine_cache import EngineCache
from cosyserve.errors import ModelError
from cosyserve.file_lock import MANIFEST
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import HEAD_BIAS, TIED_HEAD, expected_tensors, model_hash, read_tensors
from services.llm.generation.config import WEIGHTS, LlmConfig, read_config
from services.llm.hosted.extended_vocabulary import VOCABULARY_FILE, ExtendedVocabulary
from services.token2wav.decoders.engine_identity import WEIGHTS as TOKEN2WAV_WEIGHTS
from tools.model.checkpoints.llm_checkpoint import numbering, sizes_of
from tools.model.checkpoints.tensor_file import read_safetensors
from tools.model.describe_decoder import describe_decoder, known_decoder
from tools.model.output.command import ENGINES, JSON, command, engine_cache
from tools.model.output.complete_directory import damage, read_manifest
from tools.model.output.progress import in_units

_SERVED_POSITIONS = 8192


def describe_model(path: Path, cache: EngineCache, *, quick: bool) -> dict[str, Any]:
    """A published model directory. What cannot be determined is among the problems."""
    directory, problems = ModelDirectory(path), []
    files: dict[str, dict[str, Any]] = {}
    for file in sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")):
        facts: dict[str, Any] = {"bytes": file.stat().st_size}
        if file.suffix == ".pt" and file.name != "spk2info.pt":
            try:
                facts |= _summary(read_tensors(file))
            except ModelError as error:
                problems.append(str(error))
        files[file.relative_to(path).as_posix()] = facts
    description: dict[str, Any] = {
        "directory": str(path), "kind": "model directory",
        "bytes": sum(facts["bytes"] for facts in files.values())
    }  # fmt: skip
    decoder = known_decoder(directory, problems)
    parts = (_generation, _language_model, _token2wav, _voices) if decoder is None else (_token2wav, describe_decoder)
    if decoder is not None:
        kind = f"flow and vocoder of {decoder.title}, for the speech tokens of {decoder.generation.title}"
        description["kind"] = kind
    for part in parts:
        try:
            description |= part(directory, files)
        except ModelError as error:
            problems.append(str(error))
    if not quick:
        description |= _hashes(directory, cache, problems, alone=decoder is not None)
    return description | {"problems": problems, "files": files}


def describe_conversion(path: Path, *, quick: bool) -> dict[str, Any]:
    """A directory that `convert` made. Raises ModelError when its manifest is gone."""
    manifest = read_manifest(path)
    if manifest is None:
        raise ModelError(f"{path / MANIFEST}: missing or malformed")
    wrong = damage(path, manifest, thorough=not quick)
    files: dict[str, dict[str, Any]] = {}
    for name, file in manifest.files.items():
        files[name] = asdict(file)
        if name.endswith(".safetensors") and (path / name).is_file():
            files[name] |= _summary(read_safetensors(path / name))
    vocabulary = ExtendedVocabulary.load(path / VOCABULARY_FILE)
    return {
        "directory": str(path),
        "kind": "conversion",
        "bytes": manifest.size,
        "identity": dict(manifest.identity),
        "vocabulary": _numbering(vocabulary),
        "problems": [] if wrong is None else [wrong],
        "files": files,
    }


def _summary(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """values: of all tensors together; storage that two of them share counts once. dtypes: how many
    tensors there are of each type.
    """
    distinct = {
        (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.numel()): tensor
        for tensor in tensors.values()
    }
    name = max(tensors, key=lambda name: tensors[name].numel(), default="")
    return {
        "tensors": len(tensors),
        "values": sum(tensor.numel() for tensor in distinct.values()),
        "dtypes": dict(Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())),
        "bytes_of_tensors": sum(tensor.nbytes for tensor in distinct.values()),
        "largest": {"name": name, "shape": list(tensors[name].shape) if name else []},
    }


def _generation(directory: ModelDirectory, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"kind": f"{generation_of(directory).title} model directory"}


def _language_model(directory: ModelDirectory, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    config = read_config(directory)
    tokenizer, vocabulary = numbering(directory, config)
    tensors = read_tensors(directory.file(WEIGHTS))
    bias = tensors.get(HEAD_BIAS)
    if bias is None and config.speech.head_bias:
        raise ModelError(f"{directory.path / WEIGHTS}: no tensor {HEAD_BIAS}")
    if TIED_HEAD in tensors:
        files[WEIGHTS]["note"] = f"{TIED_HEAD} is never used"
    return {
        "llm": {
            "parameters": sum(math.prod(shape) for shape in expected_tensors(config).values()),
            **sizes_of(config),
            "tokens_per_text_id": f"{config.lengths.min_token_text_ratio:g} to {config.lengths.max_token_text_ratio:g}",
        },
        "vocabulary": {
            "tokenizer": "phonemes" if tokenizer is None else "byte-level BPE",
            "embedding_rows": config.text_vocabulary,
        }
        | _numbering(vocabulary),
        "sampling": asdict(config.sampling),
        "memory": _memory(config, vocabulary),
    } | (
        {}
        if bias is None
        else {
            "head_bias": {
                "largest_magnitude": float(bias.abs().max()),
                "mean": float(bias.float().mean()),
                "of_end_of_speech": float(bias[config.speech.end]),
            }
        }
    )


def _memory(config: LlmConfig, vocabulary: ExtendedVocabulary) -> dict[str, Any]:
    """Bytes of weights, and of keys and values, for every engine; activations and libraries come on
    top.
    """
    values = sum(math.prod(shape) for shape in expected_tensors(config).values())
    # What the extended vocabulary replaces: the tables, the head and its bias, which lies next to
    # it.
    rows, bias = config.text_vocabulary + 2 * config.speech.rows + vocabulary.marks, config.speech.head_bias
    replaced = rows * config.hidden_size + config.speech.rows * bias
    extended = values - replaced + 2 * vocabulary.rows * config.hidden_size
    position = 2 * config.layers * config.kv_width

    def engine(weights: int, width: int) -> dict[str, int]:
        return {
            "weights_bytes": weights * width,
            "bytes_per_position": position * width,
            "longest_sentence_bytes": position * width * _SERVED_POSITIONS,
        }

    return {
        "torch_float32": engine(values, 4),
        "torch_fused_bfloat16": engine(values, 2),
        "tensorrt_llm_bfloat16": engine(extended, 2),
        "vllm_bfloat16": engine(values, 2),
    }


def _token2wav(directory: ModelDirectory, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    counts = {name: files[name]["values"] for name in TOKEN2WAV_WEIGHTS if "values" in files.get(name, {})}
    if len(counts) < len(TOKEN2WAV_WEIGHTS):
        missing = ", ".join(name for name in TOKEN2WAV_WEIGHTS if name not in counts)
        raise ModelError(f"{directory.path}: {missing} missing; a model directory needs it")
    facts = {
        name.removesuffix(".pt"): {"parameters": count, "float32_bytes": 4 * count} for name, count in counts.items()
    }
    return {"token2wav": facts}


def _voices(directory: ModelDirectory, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    path = directory.path / "spk2info.pt"
    if not path.exists():
        return {"voices": []}
    try:
        return {"voices": sorted(str(name) for name in torch.load(path, map_location="cpu", weights_only=True))}
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        raise ModelError(f"{path}: not a file of voices ({type(error).__name__})") from error


def _numbering(vocabulary: ExtendedVocabulary) -> dict[str, Any]:
    return {
        "text_ids": vocabulary.text_ids,
        "first_speech_id": vocabulary.text_ids,
        "end_of_speech_id": vocabulary.end,
        "start_id": vocabulary.start,
        "task_id": vocabulary.task,
        "extended_tokens": vocabulary.tokens,
        "extended_rows": vocabulary.rows,
    }


def _hashes(directory: ModelDirectory, cache: EngineCache, problems: list[str], *, alone: bool) -> dict[str, Any]:
    """alone: without a speech-token model."""
    identity = {}
    stages = (("llm", None), ("token2wav", (*TOKEN2WAV_WEIGHTS, directory.yaml_name)))
    for stage, names in stages[1:] if alone else stages:
        try:
            identity[stage] = model_hash(directory) if names is None else directory.content_hash(names)
        except ModelError as error:
            problems.append(str(error))
    engines = []
    for engine in cache.entries():
        if engine.key.facts.get("model") in identity.values():
            facts = ", ".join(f"{name} {fact}" for name, fact in engine.key.facts.items() if name != "model")
            engines.append(f"{engine.directory}  {engine.bytes} bytes  {facts}")
    return {"identity": identity, "engines": engines}


def describe(path: Path, cache: EngineCache, *, quick: bool = False) -> dict[str, Any]:
    """Everything that is known of a directory. quick: without hashes. Raises ModelError."""
    if not path.is_dir():
        raise ModelError(f"{path}: no such directory")
    if (path / "llm.pt").exists() or (path / "flow.pt").exists():
        return describe_model(path, cache, quick=quick)
    if read_manifest(path) is not None:
        return describe_conversion(path, quick=quick)
    raise ModelError(f"{path}: neither a model directory nor a conversion of one")


def render(description: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{description['directory']}: {description['kind']}, {in_units(description['bytes'])}"]
    for title in (
        "identity",
        "llm",
        "vocabulary",
        "sampling",
        "head_bias",
        "token2wav",
        "voices",
        "memory",
        "engines",
        "problems",
    ):
        part = description.get(title)
        if isinstance(part, dict):
            lines += ["", title.replace("_", " ")]
            width = max((len(key) for key in part), default=0)
            lines += [f"  {key.replace('_', ' '):<{width}}  {_value(key, value)}" for key, value in part.items()]
        elif isinstance(part, list) and part:
            lines += ["", title, *(f"  {entry}" for entry in part)]
    lines += ["", "files"]
    width = max((len(name) for name in description["files"]), default=0)
    for name, facts in description["files"].items():
        types = ", ".join(f"{count} {kind}" for kind, count in facts.get("dtypes", {}).items())
        held = f"  {facts['tensors']} tensors ({types}), {facts['values']:,} values" if "tensors" in facts else ""
        lines.append(f"  {name:<{width}}  {in_units(facts['bytes']):>9}{held}")
    return "\n".join(lines)


def _value(key: str, value: object) -> str:
    if "bytes" in key and isinstance(value, int):
        return in_units(value)
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_value(name, entry)}" for name, entry in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


@command(
    "inspect",
    "Say what a directory holds, and what serving it needs.",
    {
        "directory": {"type": Path, "metavar": "DIR", "help": "model directory, or a conversion of one"},
        **ENGINES,
        "--quick": {"action": "store_true", "help": "no hashes: prints neither the identity nor the engines"},
        **JSON,
    },
)
def main(options: argparse.Namespace) -> int:
    description = describe(options.directory, engine_cache(options), quick=options.quick)
    print(json.dumps(description) if options.json else render(description))
    return 0


if __name__ == "__main__":
    sys.exit(main())
