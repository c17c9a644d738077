"""Calls of the graphs of a flow with kept state, and what the torch path makes of them: a prompt as
one block, blocks of 25 tokens behind pasts of several lengths, in batches too, and the shorter
block of a sentence's end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.engines.chunks.inputs import fill_kept, fill_lengths, positions
from services.token2wav.engines.chunks.shapes import (
    BLOCK_REACH,
    SMOOTH_REACH,
    UP_REACH,
    Block,
    encoder_shapes,
    estimator_shapes,
)
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.flow.stream_cache import CachedPass, StreamCache
from tools.model.graphs.graph import Array

_CALLS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (37, (0,)),
    (CHUNK_TOKENS, (37,)),
    (CHUNK_TOKENS, (112,)),
    (CHUNK_TOKENS, (62, 0, 137)),
    (9, (87,)),
    (140, (0,)),
)
"""Tokens of the block, and those kept of each stream."""


@dataclass(frozen=True)
class ChunkCall:
    """A call of graph `component`. wanted: what the torch path makes, by output, without padding.
    again: has the torch path make it once more.
    """

    component: str
    name: str
    inputs: dict[str, Array]
    wanted: dict[str, Array]
    again: Callable[[], object]


def chunk_calls(flow: Flow, config: StepDitConfig, most: int) -> Iterator[ChunkCall]:
    """most: streams in a batch."""
    for make in (_encoder, _estimator):
        for tokens, pasts in _CALLS:
            if len(pasts) <= most:
                yield make(flow, config, tokens, pasts)


def _name(tokens: int, pasts: tuple[int, ...]) -> str:
    return f"{len(pasts)} x {tokens} tokens behind {', '.join(map(str, pasts))}"


def _encoder(flow: Flow, config: StepDitConfig, tokens: int, pasts: tuple[int, ...]) -> ChunkCall:
    drawn, count = torch.Generator().manual_seed(tokens + sum(pasts)), len(pasts)
    width, heads, frames = config.encoder_width, config.encoder_heads, MEL_FRAMES_PER_TOKEN * tokens
    columns = [(SMOOTH_REACH, width), (UP_REACH, width)]
    stacks = [(config.encoder_layers, 1), (config.encoder_upsampled_layers, MEL_FRAMES_PER_TOKEN)]
    kept = [_state(drawn, 1, columns, stacks, heads, length, width // heads) for length in pasts]
    look = LOOKAHEAD_TOKENS if tokens >= CHUNK_TOKENS else 0
    ids = torch.randint(0, config.vocabulary, (count, tokens + look), generator=drawn)

    def again() -> tuple[Tensor, list[StreamCache]]:
        cache = CachedPass(kept, 1)
        return flow.mu([row[:tokens] for row in ids], [row[tokens:] for row in ids], list(pasts), cache), cache.after()

    mu, after = again()
    block = Block.of(count, tokens, max(pasts))
    given = _buffers(encoder_shapes(block, config), {"tokens": torch.int32})
    given["tokens"][:, : ids.shape[1]], given["known"][:, : ids.shape[1]] = ids.to(torch.int32), 1.0
    given["positions"].copy_(positions(block.past + block.tokens, block.tokens, width))
    given["positions_frames"].copy_(positions(block.past_frames + block.frames, block.frames, width))
    packed = [_packed(cache, [layers for layers, _ in stacks], single=True) for cache in kept]
    wanted, first = {"mu": mu}, 0
    for at, (suffix, ratio) in enumerate((("", 1), ("_frames", MEL_FRAMES_PER_TOKEN))):
        fill_kept(given, suffix, 1, packed, at)
        fill_lengths(given, suffix, 1, [ratio * length for length in pasts], ratio * tokens)
        last, new = first + stacks[at][0], (frames if suffix else tokens)
        wanted[f"new_past{suffix}"] = torch.cat([_added(cache, first, last, new) for cache in after], dim=1)
        wanted[f"new_columns{suffix}"] = torch.cat([cache.convolutions[at] for cache in after])
        first = last
    return ChunkCall("encoder", _name(tokens, pasts), _arrays(given), _arrays(wanted), again)


def _estimator(flow: Flow, config: StepDitConfig, tokens: int, pasts: tuple[int, ...]) -> ChunkCall:
    drawn, count = torch.Generator().manual_seed(tokens + sum(pasts)), len(pasts)
    frames, depth = MEL_FRAMES_PER_TOKEN * tokens, config.depth
    columns = [(BLOCK_REACH, config.width)] * (2 * depth)
    stacks = [(depth, MEL_FRAMES_PER_TOKEN)]
    kept = [_state(drawn, ROWS, columns, stacks, config.heads, length, config.head_width) for length in pasts]
    joined = torch.randn(ROWS * count, frames, 4 * MEL_BINS, generator=drawn)
    times = flow.estimator.times(flow.estimator.time_embedding(torch.rand(1, generator=drawn)))

    def again() -> tuple[Tensor, list[StreamCache]]:
        cache = CachedPass(kept, ROWS)
        return flow.estimator.velocity(joined, times, cache), cache.after()

    velocity, after = again()
    block = Block.of(count, tokens, max(pasts))
    given = _buffers(estimator_shapes(block, config), {})
    given["inputs"][:, :frames] = joined
    given["times"].copy_(torch.cat(times, dim=2))
    fill_kept(given, "", ROWS, [_packed(cache, [depth], single=False) for cache in kept], 0)
    fill_lengths(given, "", ROWS, [MEL_FRAMES_PER_TOKEN * length for length in pasts], frames)
    wanted = {
        "velocity": velocity,
        "new_past": torch.cat([_added(cache, 0, depth, frames) for cache in after], dim=1),
        "new_columns": torch.cat([torch.cat(cache.convolutions, dim=2) for cache in after]),
    }
    return ChunkCall("estimator", _name(tokens, pasts), _arrays(given), _arrays(wanted), again)


def _state(
    drawn: torch.Generator,
    rows: int,
    columns: Sequence[tuple[int, int]],
    stacks: Sequence[tuple[int, int]],
    heads: int,
    tokens: int,
    width: int,
) -> StreamCache:
    """A state of so many tokens as the torch path keeps it, at random; empty without tokens.
    columns: reach and channels of each convolution; stacks: layers of attention, and their frames
    for a token.
    """
    if not tokens:
        return StreamCache()
    convolutions = [torch.randn(rows, *shape, generator=drawn) for shape in columns]
    attentions = [
        (torch.randn(2, rows, heads, ratio * tokens, width, generator=drawn),)
        for layers, ratio in stacks
        for _ in range(layers)
    ]
    return StreamCache(tuple(convolutions), tuple(attentions))


def _packed(cache: StreamCache, layers: Sequence[int], *, single: bool) -> StreamCache:
    """The same as the graphs keep it. single: whether each convolution is a tensor of its own."""
    if not cache.attentions:
        return cache
    attentions, first = [], 0
    for count in layers:
        attentions.append((torch.cat([block for (block,) in cache.attentions[first : first + count]]),))
        first += count
    columns = cache.convolutions if single else (torch.cat(cache.convolutions, dim=2),)
    return StreamCache(columns, tuple(attentions))


def _added(cache: StreamCache, first: int, last: int, new: int) -> Tensor:
    """Keys and values of the newest `new` columns of layers first..last-1."""
    return torch.cat([blocks[-1][:, :, :, -new:] for blocks in cache.attentions[first:last]])


def _buffers(shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, torch.dtype]) -> dict[str, Tensor]:
    own = {name: torch.bool for name in shapes if name.startswith("seen")} | dict(types)
    return {name: torch.zeros(shape, dtype=own.get(name, torch.float32)) for name, shape in shapes.items()}


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
