"""Writes sequences to device memory: keys and values of the readable model in pages, rows of the
state table.
"""

import torch
from services.llm.gpu.state_table import Column
from torch import Tensor

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.gpu.decode import Memory
from services.llm.gpu.layout import PAGE


def paired(config_head_size: int) -> Tensor:
    """Where the numbers of a key's head stand in the packed model."""
    half = config_head_size // 2
    return torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).flatten()


def begin(memory: Memory, slot: int, cache: SequenceCache, row: int, **columns: int) -> None:
    """The sequence of `cache` sits in `slot`, on pages of its own in no order, and runs `row` of
    the joined table next.
    """
    most = memory.pages.shape[1]
    order = torch.randperm(most, generator=torch.Generator().manual_seed(slot)) + 1 + (slot - 1) * most
    memory.pages[slot] = order.to(torch.int32)
    turned = paired(cache.keys.shape[-1]).to(cache.keys.device)
    for position in range(cache.length):
        page, inside = int(order[position // PAGE]), position % PAGE
        memory.cache[:, page, :, 0, inside] = cache.keys[:, :, position][..., turned].to(memory.cache.dtype)
        memory.cache[:, page, :, 1, inside] = cache.values[:, :, position].to(memory.cache.dtype)
    values_by_column = {
        "LENGTH": cache.length,
        "INPUT": row,
        "ACTIVE": 1,
        "LONGEST": 1000,
        "CAPACITY": 1000,
        "FILL_AT": -1,
    } | columns
    for name, value in values_by_column.items():
        memory.state[slot, Column[name]] = value


def cached(model: SpeechTokenModel, tokens: list[int]) -> tuple[SequenceCache, Tensor]:
    """A slot that has run these speech tokens, and the log-probabilities behind the last,
    [6564].
    """
    from services.llm.generation.script import speech_inputs

    cache = SequenceCache.reserve(model.config, 512, model.device)
    hidden = model.forward(model.embed(speech_inputs(tokens)), cache)
    return cache, model.log_probabilities(hidden[-1:])[0]
