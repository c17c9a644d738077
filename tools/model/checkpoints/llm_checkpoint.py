"""The speech-token model as a plain Qwen2 with the extended vocabulary, whichever form it is read
from.

`from_upstream` reads the published model directory (`llm.pt`); `hugging_face_reader` a Hugging Face
directory that was made of one. Tensors have the names of Hugging Face's `Qwen2ForCausalLM` and are
read block by block. Source: compatibility specification sections 3.5 and 7.1.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import generation_of, text_id_count
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.llm.engine.weights import expected_tensors, load_tensors, model_hash
from services.llm.generation.config import BACKBONE_CONFIG, LlmConfig, read_config
from services.llm.hosted.extended_vocabulary import MASKED, ExtendedVocabulary
from tools.model.checkpoints.tensor_file import Source, zeros

EMBEDDING, HEAD, HEAD_BIAS, NORM = "model.embed_tokens.weight", "lm_head.weight", "lm_head.bias", "model.norm.weight"
MOST_POSITIONS = 32768


@dataclass(frozen=True)
class LlmCheckpoint:
    """All that other engines load.

    positions: the most that the model is declared for. tensors: by Hugging Face's names, without
    the head's bias, which their head has no place for. head_bias: float32 [rows], MASKED where no
    speech token is, 0 elsewhere for a head without one. identity: hash of what it was read from.
    tokenizer: folder with vocab.json and merges.txt; None for a model whose text ids come from
    elsewhere.
    """

    generation: Generation
    config: LlmConfig
    positions: int
    vocabulary: ExtendedVocabulary
    tensors: dict[str, Source]
    head_bias: Source
    identity: str
    tokenizer: Path | None


def from_upstream(directory: ModelDirectory) -> LlmCheckpoint:
    """Read `llm.pt`, without executing it, mapped. Raises ModelError naming file and tensor."""
    config = read_config(directory)
    given = load_tensors(directory, config)
    tokenizer, vocabulary = numbering(directory, config)
    if vocabulary.text_ids > config.text_vocabulary:
        raise ModelError(
            f"{directory.path}: {vocabulary.text_ids} tokens, the text embedding has {config.text_vocabulary} rows"
        )
    hidden, behind = config.hidden_size, vocabulary.rows - vocabulary.behind_speech
    text = given.pop("llm.model.model.embed_tokens.weight")[: vocabulary.text_ids]
    speech, marks = given.pop("speech_embedding.weight"), given.pop("llm_embedding.weight", text[:0])
    decoder, bias = given.pop("llm_decoder.weight"), given.pop("llm_decoder.bias", torch.zeros(config.speech.rows))
    tensors = {EMBEDDING: Source(text, speech, marks, zeros(vocabulary.rows - vocabulary.tokens, hidden))}
    tensors |= {name.removeprefix("llm.model."): Source(values) for name, values in given.items()}
    tensors[HEAD] = Source(zeros(vocabulary.text_ids, hidden), decoder, zeros(behind, hidden))
    return LlmCheckpoint(
        generation=generation_of(directory),
        config=config,
        positions=declared_positions(json.loads(directory.file(BACKBONE_CONFIG).read_text(encoding="utf-8"))),
        vocabulary=vocabulary,
        tensors=tensors,
        head_bias=masked_elsewhere(vocabulary, bias),
        identity=model_hash(directory),
        tokenizer=tokenizer,
    )


def masked_elsewhere(vocabulary: ExtendedVocabulary, bias: Tensor) -> Source:
    """The bias [rows] of all ids, by that of the head of speech tokens."""
    masked = torch.full((vocabulary.rows,), MASKED)
    return Source(masked[: vocabulary.text_ids], bias, masked[vocabulary.behind_speech :])


def numbering(directory: ModelDirectory, config: LlmConfig) -> tuple[Path | None, ExtendedVocabulary]:
    """The folder of a model's tokenizer, and the extended vocabulary. A model whose text ids are no
    BPE has no tokenizer that could be handed on, and uses all rows of its embedding.
    """
    tokenizer = directory.path / "CosyVoice-BlankEN"
    if not (tokenizer / "vocab.json").exists():
        return None, ExtendedVocabulary(config.text_vocabulary, config.speech)
    read_tokenizer(directory)  # refuses one that is not Qwen2's
    return tokenizer, ExtendedVocabulary(text_id_count(directory, generation_of(directory)), config.speech)


def expected_shapes(config: LlmConfig, vocabulary: ExtendedVocabulary) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint, by Hugging Face's names."""
    served = expected_tensors(config).items()
    layers = {name.removeprefix("llm.model."): shape for name, shape in served if ".layers." in name}
    table = (vocabulary.rows, config.hidden_size)
    return {EMBEDDING: table, HEAD: table, NORM: (config.hidden_size,)} | layers


def declared_positions(backbone: Mapping[str, Any]) -> int:
    """Most positions that a config.json declares the model for."""
    positions = backbone.get("max_position_embeddings")
    return positions if isinstance(positions, int) and positions > 0 else MOST_POSITIONS


def sizes_of(config: LlmConfig) -> dict[str, float]:
    """The sizes of the backbone by name."""
    names = "hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_size", "rope_theta", "rms_norm_eps"
    return {name: getattr(config, name) for name in names}
