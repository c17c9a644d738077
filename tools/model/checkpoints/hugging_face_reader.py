"""A Hugging Face directory that was made of the speech-token model, read as an `LlmCheckpoint`.

Two kinds: what `convert --target hf` made, with the head's bias next to the weights, and the
published conversion, whose weights hold `lm_head.bias` where the head has one. Source:
compatibility specification of CosyVoice2, section 7.1, and of CosyVoice3, section 7.3.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cosyserve.errors import ModelError
from cosyserve.generations.generation import SpeechVocabulary
from cosyserve.generations.reading import GENERATIONS
from cosyserve.model_directory import ModelDirectory, check_tensors
from services.llm.generation.config import LlmConfig, SamplingParameters
from services.llm.hosted.extended_vocabulary import (
    HEAD_BIAS_FILE,
    HEAD_BIAS_TENSOR,
    MASKED,
    VOCABULARY_FILE,
    ExtendedVocabulary,
)
from tools.model.checkpoints.llm_checkpoint import (
    EMBEDDING,
    HEAD,
    HEAD_BIAS,
    LlmCheckpoint,
    declared_positions,
    expected_shapes,
    from_upstream,
    masked_elsewhere,
    sizes_of,
)
from tools.model.checkpoints.tensor_file import Precision, Source, read_sources, rounded
from tools.model.output.complete_directory import read_manifest


def open_checkpoint(path: Path) -> LlmCheckpoint:
    """A published model directory, or a Hugging Face directory made of one. Raises ModelError
    saying what is missing.
    """
    if (path / "llm.pt").exists():
        return from_upstream(ModelDirectory(path))
    if (path / "config.json").exists() and any(path.glob("*.safetensors")):
        return from_transformers(path)
    raise ModelError(
        f"{path}: neither a model directory (llm.pt) nor a Hugging Face one (config.json and model.safetensors)"
    )


def from_transformers(path: Path) -> LlmCheckpoint:
    """Read a Hugging Face directory: one that `convert --target hf` made, or a published one, whose
    weights hold `lm_head.bias` where the head has one.
    """
    given = _read_json(path / "config.json")
    if given.get("architectures") != ["Qwen2ForCausalLM"]:
        raise ModelError(
            f"{path / 'config.json'}: architectures is {given.get('architectures')!r}, expected ['Qwen2ForCausalLM']"
        )
    files = sorted(path.glob("*.safetensors"))
    tensors = {name: tensor for file in files for name, tensor in read_sources(file).items()}
    if (path / VOCABULARY_FILE).exists():
        vocabulary = ExtendedVocabulary.load(path / VOCABULARY_FILE)
        bias_file = path / HEAD_BIAS_FILE
        if not bias_file.exists():
            raise ModelError(
                f"{bias_file}: missing; without the head's bias the model says something else: convert it again from "
                "llm.pt"
            )
        side = read_sources(bias_file)
        if HEAD_BIAS_TENSOR not in side:
            raise ModelError(f"{bias_file}: holds no tensor {HEAD_BIAS_TENSOR}")
        head_bias = side[HEAD_BIAS_TENSOR]
    else:
        vocabulary = _numbering(path / "config.json", given)
        if not vocabulary.speech.head_bias:
            # Text has live rows in the published head.
            head_bias = masked_elsewhere(vocabulary, torch.zeros(vocabulary.speech.rows))
        elif HEAD_BIAS in tensors:
            # Rows without a token hold -inf in the published file.
            head_bias = Source(tensors.pop(HEAD_BIAS).tensor().clamp_min(MASKED))
        else:
            raise ModelError(
                f"{path}: holds no {HEAD_BIAS}: some loader dropped it; convert from the model directory with llm.pt"
            )
    sampling = _sampling(path / "generation_config.json")
    config = _config(path / "config.json", given, sampling, vocabulary.speech)
    check_tensors(path, tensors, expected_shapes(config, vocabulary))
    check_tensors(path, {HEAD_BIAS: head_bias}, {HEAD_BIAS: (vocabulary.rows,)})
    words = (path / "vocab.json").exists() and (path / "merges.txt").exists()
    return LlmCheckpoint(
        generation=next(each for each in GENERATIONS if each.speech == vocabulary.speech),
        config=config,
        positions=declared_positions(given),
        vocabulary=vocabulary,
        tensors=tensors,
        head_bias=head_bias,
        identity=_identity(path),
        tokenizer=path if words else None,
    )


def _config(path: Path, config: dict[str, Any], sampling: SamplingParameters, speech: SpeechVocabulary) -> LlmConfig:
    if config.get("tie_word_embeddings", True) or config.get("use_sliding_window") or config.get("rope_scaling"):
        raise ModelError(
            f"{path}: a tied head, a sliding window or rotary scaling is no conversion of a CosyVoice model"
        )
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return LlmConfig(
            speech=speech,
            hidden_size=hidden,
            intermediate_size=int(config["intermediate_size"]),
            layers=int(config["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(config["num_key_value_heads"]),
            head_size=int(config.get("head_dim") or hidden // heads),
            rope_theta=float(config["rope_theta"]),
            rms_norm_eps=float(config["rms_norm_eps"]),
            text_vocabulary=int(config["vocab_size"]),
            sampling=sampling,
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelError(f"{path}: no Qwen2 configuration ({type(error).__name__}: {error})") from error


def _sampling(path: Path) -> SamplingParameters:
    given = _read_json(path) if path.exists() else {}
    default = SamplingParameters()
    try:
        return SamplingParameters(
            top_p=float(given.get("top_p", default.top_p)), top_k=int(given.get("top_k", default.top_k))
        )
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path}: top_p or top_k is no number: {error}") from error


def _numbering(path: Path, config: dict[str, Any]) -> ExtendedVocabulary:
    """The numbering of a published conversion follows from its end-of-speech id, its generation
    from the number of rows that belongs to it.
    """
    end = config.get("eos_token_id")
    if not isinstance(end, int) or any(end <= generation.speech.rows for generation in GENERATIONS):
        raise ModelError(f"{path}: eos_token_id is {end!r}, expected the id of <|eos1|>")
    possible = [ExtendedVocabulary(end - each.speech.end, each.speech) for each in GENERATIONS]
    for vocabulary in possible:
        if config.get("vocab_size") == vocabulary.rows:
            return vocabulary
    expected = " or ".join(str(vocabulary.rows) for vocabulary in possible)
    raise ModelError(f"{path}: vocab_size is {config.get('vocab_size')!r}, with <|eos1|> at {end} expected {expected}")


def _identity(path: Path) -> str:
    manifest = read_manifest(path)
    if manifest is not None and "source" in manifest.identity:
        return manifest.identity["source"]
    return ModelDirectory(path).content_hash([*sorted(file.name for file in path.glob("*.safetensors")), "config.json"])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected an object at the top")
    return content


def as_conversion_of(checkpoint: LlmCheckpoint, model: LlmCheckpoint) -> LlmCheckpoint:
    """`checkpoint` under the identity of `model`, so that it is served and verified with that one.

    Every weight that is ever used has to be the model's, rounded to float32, bfloat16 or float16:
    text, speech and marks of the embedding, layers, and the speech part of the head and its bias.
    Raises ModelError naming the first tensor that is another.
    """
    if checkpoint.vocabulary.speech != model.vocabulary.speech:
        raise ModelError(f"it is of {checkpoint.generation.title}, the model is of {model.generation.title}")
    if checkpoint.vocabulary != model.vocabulary:
        raise ModelError(
            f"its text ids are {checkpoint.vocabulary.text_ids}, those of the model are {model.vocabulary.text_ids}"
        )
    if sizes_of(checkpoint.config) != sizes_of(model.config):
        raise ModelError(
            f"its sizes are {sizes_of(checkpoint.config)}, those of the model are {sizes_of(model.config)}"
        )
    theirs, ours = _used(checkpoint), _used(model)
    for name, tensor in ours.items():
        if not any(_equal(theirs[name], tensor, precision) for precision in Precision):
            raise ModelError(f"{name} is not the model's, in no number type: it was made of another model")
    # A generation is known here by its vocabulary, which two may have in common.
    return replace(checkpoint, generation=model.generation, identity=model.identity)


def _used(checkpoint: LlmCheckpoint) -> dict[str, Source]:
    vocabulary = checkpoint.vocabulary
    first, last = vocabulary.text_ids, vocabulary.behind_speech
    return {
        **checkpoint.tensors,
        EMBEDDING: checkpoint.tensors[EMBEDDING].rows(0, vocabulary.tokens),
        HEAD: checkpoint.tensors[HEAD].rows(first, last),
        HEAD_BIAS: checkpoint.head_bias.rows(first, last),
    }


def _equal(second: Source, wanted: Source, precision: Precision) -> bool:
    """Whether `second` is `wanted` rounded to this type."""
    try:
        return second.shape == wanted.shape and all(
            torch.equal(one, rounded(other, precision).float())
            for one, other in zip(second.blocks(), wanted.blocks(), strict=True)
        )
    except OverflowError:
        return False
