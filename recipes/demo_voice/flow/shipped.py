"""`flow.pt` as the service reads it: every id has its row, half precision."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from cosyserve.model_directory import check_tensors
from recipes.demo_voice.flow.parameters import TOKENS
from recipes.demo_voice.training.parameter_store import halved, save
from services.token2wav.flow.weights import FILE, FlowConfig, expected_tensors


def expanded(parameters: Mapping[str, Tensor], config: FlowConfig, first_id: int) -> dict[str, Tensor]:
    """The embedding with a row for each of the vocabulary's ids, zeros for those that the tokenizer
    never puts out.
    """
    compact = parameters[TOKENS]
    rows = compact.new_zeros(config.vocabulary, compact.shape[1])
    rows[first_id : first_id + compact.shape[0]] = compact.detach()
    return {**parameters, TOKENS: rows}


def write(folder: Path, parameters: Mapping[str, Tensor], config: FlowConfig, first_id: int) -> Path:
    """Write `flow.pt` into `folder`. Raises ModelError unless names and shapes are those that the
    service expects.
    """
    path = folder / FILE
    tensors = halved(expanded(parameters, config, first_id))
    check_tensors(path, tensors, expected_tensors(config))
    save(path, tensors)
    return path
