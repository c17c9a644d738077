"""A conversion of the speech-token model as it lies on the disk: its own configuration, names and
tensors, computed in float32.

Written from the formats' descriptions and apart from the served model, so that the two agreeing
says something about both. Source: compatibility specification sections 3.1, 7.1, 7.3 and 7.6;
rotary embedding: Su et al., 2021.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import ModelError
from services.llm.generation.request import Prompt
from services.llm.hosted.extended_vocabulary import (
    HEAD_BIAS_FILE,
    HEAD_BIAS_TENSOR,
    MARKS,
    PROMPT_EMBEDDINGS_FILE,
    TEXT,
    VOCABULARY_FILE,
    ExtendedVocabulary,
)
from tools.model.checkpoints.tensor_file import read_sources


@dataclass(frozen=True)
class Question:
    """What a sentence begins with, and the speech tokens that follow, one at least; asked for are
    the scores of each and of the next.
    """

    prompt: Prompt
    text: tuple[int, ...]
    spoken: tuple[int, ...]

    @property
    def before(self) -> int:
        """Positions before the first spoken one."""
        return 2 + len(self.prompt.text_ids) + len(self.text) + len(self.prompt.speech_tokens)


@dataclass(frozen=True)
class Block:
    """Weights of one layer; qkv: the three one above the other."""

    norms: tuple[Tensor, Tensor]
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Sizes:
    layers: int
    heads: int
    kv_heads: int
    width: int
    """Of a head."""
    theta: float
    epsilon: float


@dataclass(frozen=True)
class Converted:
    """embedded: [n, hidden] of a question. block: of a layer, read when it is asked for. head,
    bias: of all ids that it counts. first: id of the first speech token."""

    sizes: Sizes
    embedded: Callable[[Question], Tensor]
    block: Callable[[int], Block]
    norm: Tensor
    head: Tensor
    bias: Tensor
    first: int

    def hidden(self, question: Question) -> list[Tensor]:
        """[n, hidden] before the first layer and behind each."""
        x = self.embedded(question)
        outputs = [x]
        rotation = _rotation(len(x), self.sizes)
        for at in range(self.sizes.layers):
            outputs.append(self._layer(outputs[-1], self.block(at), rotation))
        return outputs

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """Of every id [n, ids], from what the last layer hands on."""
        return F.log_softmax(F.linear(_norm(hidden, self.norm, self.sizes.epsilon), self.head, self.bias), dim=-1)

    def _layer(self, x: Tensor, block: Block, rotation: Tensor) -> Tensor:
        sizes, count = self.sizes, len(x)
        joined = F.linear(_norm(x, block.norms[0], sizes.epsilon), block.qkv, block.qkv_bias).view(
            count, -1, sizes.width
        )
        q, k, v = torch.split(joined, [sizes.heads, sizes.kv_heads, sizes.kv_heads], dim=1)
        each = sizes.heads // sizes.kv_heads
        k, v = (part.repeat_interleave(each, dim=1) for part in (_turned(k, rotation), v))
        q, k, v = (part.transpose(0, 1) for part in (_turned(q, rotation), k, v))
        future = torch.ones(count, count, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(1, 2) / sizes.width**0.5).masked_fill(future, -torch.inf)
        attended = scores.softmax(dim=-1) @ v
        x = x + F.linear(attended.transpose(0, 1).reshape(count, -1), block.out)
        y = _norm(x, block.norms[1], sizes.epsilon)
        return x + F.linear(F.silu(F.linear(y, block.gate)) * F.linear(y, block.up), block.down)


def read_conversion(directory: Path, kind: str) -> Converted:
    """kind: as its manifest has it. Raises ModelError."""
    try:
        return _read(directory, kind, json.loads((directory / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{directory}: cannot be read: {type(error).__name__}: {error}") from error


def _read(directory: Path, kind: str, config: dict[str, Any]) -> Converted:
    file, table, norm, sizes, block = _HUGGING_FACE if kind in ("llm-hf", "llm-vllm") else _TENSORRT_LLM
    tensor, vocabulary = _tensors(directory / file), ExtendedVocabulary.load(directory / VOCABULARY_FILE)
    if kind == "llm-vllm":
        prompt, speech, said = _tensors(directory / PROMPT_EMBEDDINGS_FILE), vocabulary.speech, tensor(table)
        first, bias = 0, tensor("lm_head.bias") if speech.head_bias else torch.zeros(speech.rows)
        embedded = _by_tables(
            prompt(TEXT), said[[speech.start, speech.task]] if speech.start is not None else prompt(MARKS), said
        )
    else:
        first, bias = vocabulary.text_ids, _tensors(directory / HEAD_BIAS_FILE)(HEAD_BIAS_TENSOR)
        embedded = _by_ids(tensor(table), vocabulary)
    of_config = Sizes(*(config[name] for name in sizes))
    return Converted(of_config, embedded, partial(block, tensor), tensor(norm), tensor("lm_head.weight"), bias, first)


def _tensors(path: Path) -> Callable[[str], Tensor]:
    tensors = read_sources(path)
    return lambda name: tensors[name].tensor()


def _hugging_face_block(tensor: Callable[[str], Tensor], at: int) -> Block:
    here = f"model.layers.{at}"

    def joined(kind: str) -> Tensor:
        return torch.cat([tensor(f"{here}.self_attn.{part}_proj.{kind}") for part in "qkv"])

    norms = tensor(f"{here}.input_layernorm.weight"), tensor(f"{here}.post_attention_layernorm.weight")
    gate, up, down = (tensor(f"{here}.mlp.{part}_proj.weight") for part in ("gate", "up", "down"))
    return Block(norms, joined("weight"), joined("bias"), tensor(f"{here}.self_attn.o_proj.weight"), gate, up, down)


def _tensorrt_llm_block(tensor: Callable[[str], Tensor], at: int) -> Block:
    here = f"transformer.layers.{at}"
    norms = tensor(f"{here}.input_layernorm.weight"), tensor(f"{here}.post_layernorm.weight")
    qkv, bias, out = (tensor(f"{here}.attention.{name}") for name in ("qkv.weight", "qkv.bias", "dense.weight"))
    activated, up, down = (tensor(f"{here}.mlp.{name}.weight") for name in ("fc", "gate", "proj"))
    return Block(norms, qkv, bias, out, activated, up, down)


_HUGGING_FACE = (
    "model.safetensors",
    "model.embed_tokens.weight",
    "model.norm.weight",
    ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps"),
    _hugging_face_block,
)
"""The file of weights, the names of the embedding and of the last norm, where `Sizes` are in the
configuration, and the reader of a layer.
"""
_TENSORRT_LLM = (
    "rank0.safetensors",
    "transformer.vocab_embedding.weight",
    "transformer.ln_f.weight",
    ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_size", "rotary_base", "norm_epsilon"),
    _tensorrt_llm_block,
)


def _by_tables(text: Tensor, marks: Tensor, speech: Tensor) -> Callable[[Question], Tensor]:
    """Through a table for each kind of input."""

    def embedded(question: Question) -> Tensor:
        written, said = [*question.prompt.text_ids, *question.text], [*question.prompt.speech_tokens, *question.spoken]
        return torch.cat([marks[:1], text[written], marks[1:], speech[said]])

    return embedded


def _by_ids(table: Tensor, vocabulary: ExtendedVocabulary) -> Callable[[Question], Tensor]:
    """Through the one vocabulary for everything."""

    def embedded(question: Question) -> Tensor:
        spoken = [vocabulary.text_ids + token for token in question.spoken]
        return table[vocabulary.sequence(question.prompt, question.text) + spoken]

    return embedded


def _norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * (x * x).mean(dim=-1, keepdim=True).add(epsilon).rsqrt() * weight


def _rotation(count: int, sizes: Sizes) -> Tensor:
    """Complex [n, 1, width / 2]: how far each pair of each position turns."""
    rates = sizes.theta ** (-torch.arange(0, sizes.width, 2, dtype=torch.float64) / sizes.width)
    angles = torch.outer(torch.arange(count, dtype=torch.float64), rates)
    return torch.polar(torch.ones_like(angles), angles)[:, None].to(torch.complex64)


def _turned(x: Tensor, rotation: Tensor) -> Tensor:
    """Entry i turns with entry i + width / 2."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.complex(first, second) * rotation
    return torch.cat([turned.real, turned.imag], dim=-1)
