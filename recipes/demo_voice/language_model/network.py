"""The served network around tensors that want gradients, and back into the published file."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from recipes.demo_voice.language_model.layouts import Vocabulary
from recipes.demo_voice.tokenizer import codes
from recipes.demo_voice.training import parameter_store
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.weights import expected_tensors
from services.llm.generation.config import LlmConfig

TABLES = ("llm_embedding.weight", "llm.model.model.embed_tokens.weight", "speech_embedding.weight")
HEAD, HEAD_BIAS = "llm_decoder.weight", "llm_decoder.bias"
TABLE_GAIN = 8.0
"""Tables are learnt at a fraction of the size they are used at, so that they move as far in a step
as other weights do.
"""
NEVER = -1e4
"""Bias of an id that is never to be chosen; fits half precision."""
_SPREAD = 0.02
_SPEECH = COSYVOICE2.speech
"""The bundled voice is a model of this generation."""


@dataclass(frozen=True)
class ThinnedModel(SpeechTokenModel):
    """The served network with dropout on what enters it and on what its blocks add."""

    dropout: float = 0.0

    def _branch(self, change: Tensor) -> Tensor:
        return F.dropout(change, self.dropout) if self.dropout else change

    def hidden(self, inputs: Tensor) -> Tensor:
        """int64 [batch, positions], ids of `Vocabulary` -> float32 [batch, positions, hidden]."""
        with mixed_precision(inputs.device):
            return self.forward_batch(self._branch(F.embedding(inputs, torch.cat(self.tables)))).float()

    def scores(self, hidden: Tensor) -> Tensor:
        """float32 [..., hidden] -> [..., decisions], logits."""
        return F.linear(hidden, self.head, self.head_bias)


def mixed_precision(device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 products on CUDA."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def shapes(config: LlmConfig, vocabulary: Vocabulary) -> dict[str, tuple[int, ...]]:
    """The published tensors, those of speech with as many rows as the training has ids."""
    rows = {TABLES[2]: (vocabulary.codes + 1, config.hidden_size), HEAD: (vocabulary.decisions, config.hidden_size)}
    return expected_tensors(config) | rows | {HEAD_BIAS: (vocabulary.decisions,)}


def initialise(config: LlmConfig, vocabulary: Vocabulary, device: torch.device) -> dict[str, Tensor]:
    """Leaf tensors. What writes to the residual stream starts smaller the more blocks write to
    it.
    """

    def first_value(name: str, shape: tuple[int, ...]) -> Tensor:
        if len(shape) == 1:
            return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        writes = "o_proj" in name or "down_proj" in name
        return torch.empty(shape).normal_(0.0, _SPREAD / (2 * config.layers) ** 0.5 if writes else _SPREAD)

    return parameter_store.make(shapes(config, vocabulary), first_value, device)


@torch.no_grad()
def start_from(bundled: Mapping[str, Tensor], leaves: Mapping[str, Tensor], vocabulary: Vocabulary) -> None:
    """Give `leaves` the values of a file that `published` wrote; rows of speech as
    `codes.known_ids` finds them, the row of a hidden code is left as it is.

    Raises ValueError when the file is of a model of other sizes, or its speech tokens are not those
    of a tokenizer of this recipe.
    """
    parameter_store.require_names(bundled, leaves)
    device = leaves[HEAD].device
    values = {
        name: tensor.to(device, torch.float32) / (TABLE_GAIN if name in TABLES else 1.0)
        for name, tensor in bundled.items()
    }
    ids = codes.known_ids(codes.digits_of(vocabulary.codes), values[HEAD_BIAS] > NEVER / 2)
    decided = torch.cat((ids, ids.new_tensor([_SPEECH.end, _SPEECH.fill])))
    values[TABLES[2]] = torch.cat((values[TABLES[2]][ids], leaves[TABLES[2]][vocabulary.codes :]))
    values |= {name: values[name][decided] for name in (HEAD, HEAD_BIAS)}
    for name, leaf in leaves.items():
        if values[name].shape != leaf.shape:
            raise ValueError(f"{name} is {list(values[name].shape)} in the file, expected {list(leaf.shape)}")
        leaf.copy_(values[name])


def build(config: LlmConfig, leaves: Mapping[str, Tensor], dropout: float = 0.0) -> ThinnedModel:
    """The network on the leaves' device; gradients reach the leaves."""
    tensors = {**leaves, **{name: leaves[name] * TABLE_GAIN for name in TABLES}}
    return replace(ThinnedModel.build(config, tensors, leaves[HEAD].device), dropout=dropout)


@torch.no_grad()
def published(leaves: Mapping[str, Tensor], vocabulary: Vocabulary, first_id: int) -> dict[str, Tensor]:
    """The tensors of `llm.pt`, float32: code k is speech id first_id + k; ids that no code has are
    zero and never chosen.
    """
    tensors = {name: leaf.detach() * (TABLE_GAIN if name in TABLES else 1.0) for name, leaf in leaves.items()}
    own = slice(first_id, first_id + vocabulary.codes)
    table, head, bias = tensors[TABLES[2]], tensors[HEAD], tensors[HEAD_BIAS]
    wide = head.new_zeros(_SPEECH.rows, head.shape[1])
    tensors[TABLES[2]] = wide.clone()
    tensors[TABLES[2]][own] = table[: vocabulary.codes]
    tensors[HEAD], tensors[HEAD_BIAS] = wide, bias.new_full((_SPEECH.rows,), NEVER)
    for into, rows in ((tensors[HEAD], head), (tensors[HEAD_BIAS], bias)):
        into[own] = rows[: vocabulary.codes]
        into[_SPEECH.end], into[_SPEECH.fill] = rows[vocabulary.end], rows[vocabulary.fill]
    return tensors
