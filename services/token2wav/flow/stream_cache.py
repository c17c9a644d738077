"""The state of one stream in the flow, and what a pass over a block stores in it for the next
block.

Under streaming masks a block sees everything before it and nothing after it. So all it needs of the
past are the last input frames of each causal convolution and the keys and values of each attention.
Every pass calls the layers in the same order; the n-th convolution of a pass reads what the n-th
convolution of the previous pass stored.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from services.token2wav.flow.kept_memory import BlockMemory


@dataclass(frozen=True)
class StreamCache:
    """Of one stream and one network; never modified, so a fork may share it.

    convolutions: per convolution [rows, reach, channels]. attentions: per attention one tensor per
    block, [2 (keys, values), rows, heads, frames of the block, head width].
    """

    convolutions: tuple[Tensor, ...] = ()
    attentions: tuple[tuple[Tensor, ...], ...] = ()

    @property
    def frames(self) -> int:
        """Frames before the next block, of a network with attention."""
        return sum(block.shape[3] for block in self.attentions[0]) if self.attentions else 0

    def without_middle(self, first: int, newest: int) -> "StreamCache":
        """Of each attention only the `first` blocks and the `newest` ones; the same cache where
        there are no others.
        """
        if not self.attentions or len(self.attentions[0]) <= first + newest:
            return self
        return StreamCache(self.convolutions, tuple((*each[:first], *each[-newest:]) for each in self.attentions))

    @cached_property
    def bytes(self) -> int:
        """Bytes of all tensors; cached, because there may be thousands and they never change."""
        blocks = (block for attention in self.attentions for block in attention)
        return sum(t.nbytes for t in self.convolutions) + sum(block.nbytes for block in blocks)


class Workspace:
    """Memory that all attentions reuse for their joined keys and values. It stays in the
    processor's cache, whereas fresh memory would be requested from the system, page by page, for
    each attention.
    """

    def __init__(self) -> None:
        self._flat = torch.empty(0)

    def joined(self, blocks: Sequence[Tensor], dim: int) -> Tensor:
        """The blocks concatenated along `dim`; valid until the next call."""
        first = blocks[0]
        shape = list(first.shape)
        shape[dim] = sum(block.shape[dim] for block in blocks)
        size = math.prod(shape)
        if self._flat.numel() < size or self._flat.dtype != first.dtype:
            self._flat = torch.empty(size + size // 2, dtype=first.dtype)
        return torch.cat(list(blocks), dim=dim, out=self._flat[:size].view(shape))


class CachedPass:
    """One pass over the next block of several streams, whose rows are batched: stream i has rows [i
    * rows, (i + 1) * rows).

    Tensors that go into `StreamCache` are copied out of the batch, so that each stream's memory is
    separate and aligned. workspace: where the keys and values of a single stream are joined; None:
    in fresh memory, as on a GPU. memory: where those of the block are kept, one for each stream;
    empty: where torch puts them.
    """

    def __init__(
        self,
        pasts: Sequence[StreamCache],
        rows: int,
        *,
        keep: bool = True,
        workspace: Workspace | None = None,
        memory: Sequence[BlockMemory] = (),
    ) -> None:
        self._workspace, self._memory = workspace, memory
        self._pasts = list(pasts)
        self._rows, self._keep = rows, keep
        self._convolutions: list[list[Tensor]] = [[] for _ in self._pasts]
        self._attentions: list[list[tuple[Tensor, ...]]] = [[] for _ in self._pasts]
        self._convolution = 0
        self._attention = 0

    @classmethod
    def whole(cls, rows: int) -> "CachedPass":
        """For a pass over a whole sentence: there is nothing before it, and nothing is stored."""
        return cls([StreamCache()], rows, keep=False)

    def places(self, count: int, device: torch.device) -> Tensor:
        """Where the next `count` frames stand in their streams, counted from 0: int64 [all rows,
        count], or [1, count] where there is one stream.
        """
        firsts = torch.tensor([past.frames for past in self._pasts], device=device)
        places = firsts[:, None] + torch.arange(count, device=device)
        return places if len(self._pasts) == 1 else places.repeat_interleave(self._rows, dim=0)

    def before(self, x: Tensor, reach: int) -> Tensor:
        """x [all rows, time, channels] preceded by the `reach` frames before it; zeros at the start
        of the stream.
        """
        at = self._convolution
        self._convolution += 1
        left = [
            p.convolutions[at] if p.convolutions else x.new_zeros(self._rows, reach, x.shape[2]) for p in self._pasts
        ]
        joined = torch.cat([left[0] if len(left) == 1 else torch.cat(left), x], dim=1)
        if self._keep:
            for stream, tails in enumerate(self._convolutions):
                tails.append(joined[self._span(stream), -reach:].clone(memory_format=torch.contiguous_format))
        return joined

    def keys_values(self, new: Tensor) -> list[Tensor]:
        """Per stream all keys and values up to the end of the block, [2, rows, heads, so far,
        width], given those of the block.
        """
        at = self._attention
        self._attention += 1
        if not self._keep:
            return [new]
        known = []
        for stream, past in enumerate(self._pasts):
            own = self._copied(stream, new[:, self._span(stream)])
            blocks = (*past.attentions[at], own) if past.attentions else (own,)
            self._attentions[stream].append(blocks)
            known.append(own if len(blocks) == 1 else self._joined(blocks))
        return known

    def _copied(self, stream: int, own: Tensor) -> Tensor:
        return self._memory[stream].copy(own) if self._memory else own.clone(memory_format=torch.contiguous_format)

    def _joined(self, blocks: tuple[Tensor, ...]) -> Tensor:
        # The caller reads the streams of a batch after all of them are joined, so one workspace
        # serves only a single stream.
        return (
            self._workspace.joined(blocks, dim=3)
            if self._workspace and len(self._pasts) == 1
            else torch.cat(blocks, dim=3)
        )

    @property
    def pasts(self) -> list[StreamCache]:
        """What each stream kept, for a network that computes a pass in one call."""
        return self._pasts

    def store(self, stream: int, convolutions: Sequence[Tensor], added: Sequence[Tensor]) -> None:
        """What such a network hands on: the tensors that replace those of the stream's
        convolutions, and the block's own keys and values. They must be the caller's no more.
        """
        if not self._keep:
            return
        past = self._pasts[stream].attentions
        self._convolutions[stream] = list(convolutions)
        self._attentions[stream] = [(*(past[at] if past else ()), own) for at, own in enumerate(added)]

    def split(self, x: Tensor) -> list[Tensor]:
        """x [all rows, ...] per stream."""
        return [x] if len(self._pasts) == 1 else [x[self._span(stream)] for stream in range(len(self._pasts))]

    def after(self) -> list[StreamCache]:
        """What the next block of each stream needs; call once, after the pass."""
        return [StreamCache(tuple(c), tuple(a)) for c, a in zip(self._convolutions, self._attentions, strict=True)]

    def _span(self, stream: int) -> slice:
        return slice(stream * self._rows, (stream + 1) * self._rows)


EMPTY = StreamCache()
