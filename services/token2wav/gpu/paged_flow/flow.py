"""The flow on a GPU: batches of grid blocks whose state is in pages of one pool; one CUDA graph for
each batch size.
"""

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Generic

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS
from services.token2wav.flow.layers import Linear, Tensors
from services.token2wav.flow.solver import ROWS, noise_table
from services.token2wav.gpu.device.grid_barrier import claim_grid_barrier
from services.token2wav.gpu.device.launcher import EXACT_TILES, Launcher, ceil
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KeptNumbers
from services.token2wav.gpu.paged_flow.networks import Config, PagedNetwork
from services.token2wav.gpu.paged_flow.transformer_buffers import barrier_programs
from services.token2wav.gpu.paged_flow.unit_table import Unit, UnitTable

BUCKETS = (1, 2, 4, 8, 16, 32)
LONG_BUCKETS = (48, 64, 96, 128)
"""Additional batch sizes for recomputed sentences that are longer than the largest bucket."""
BARRIER_CHANNELS = (128, 256)
"""Channels of flows whose feed-forward kernel may use a grid barrier: a program's share of the
weights is wide enough for the matrix units and fits into shared memory together with its rows.
"""
BY_HEAD = 4
"""Maximum units of a batch whose attention is fused with the product that follows it, where
feed-forwards use a grid barrier.
"""
LONG_PAGES = 8
"""With more pages, the keys of small batches are split."""


COMPILING_STEPS = (0, EULER_STEPS - 1)
"""Euler steps that together launch every kernel of a pass; the others differ in addresses alone,
and launching them from Python takes seconds of a start.
"""


class Way(Enum):
    """Graphs of the same pass: over few pages, over many, over scratch pages, and in clusters: over
    few pages, no unit of which is a block that another reads.
    """

    SHORT = 0
    LONG = 1
    RECOMPUTED = 2
    APART = 3


def widest_barrier_step(sizes: Sequence[int], launch: Launcher, channels: int, multiprocessors: int) -> int:
    """Maximum units of a pass such that it and all smaller `sizes` launch at most as many
    feed-forward programs as there are multiprocessors; 0: none.
    """
    widest = 0
    for size in sorted(sizes):
        rows = size * ROWS * CHUNK_FRAMES
        tile = launch.tile("feed forward", rows)
        if barrier_programs(tile, channels) * ceil(rows, tile.rows) > multiprocessors:
            break
        widest = size
    return widest


class PagedFlow(Generic[Config]):
    """Weights, static buffers and the pool. For one owner thread; page ownership is managed by
    `page_pool`.

    dtype: of products' operands, of the pages, and of the results of attention heads. kept: type of
    the estimator's keys and values in pages, scratch pages too. pages: number of pages in the pool,
    which is allocated here. Page 0 is a dummy page: padding units write to it. barrier_units,
    by_head: see `TransformerBuffers`. clusters: an Euler step of a small batch is one launch of
    thread-block clusters, where that is possible. `recompute` computes a sentence from its start in
    one pass over scratch pages, whose content no later step or layer needs.
    """

    def __init__(
        self, network: PagedNetwork[Config], config: Config, tensors: Mapping[str, Tensor], *, pages: int,
        dtype: torch.dtype = torch.bfloat16, buckets: Sequence[int] = BUCKETS, most: int | None = None,
        launch: Launcher | None = None, barrier_units: int | None = None, by_head: int = BY_HEAD,
        kept: KeptNumbers = AS_OPERANDS, clusters: bool = False,
    ) -> None:  # fmt: skip
        device = tensors["spk_embed_affine_layer.bias"].device
        self.config, self.device, self.dtype = config, device, dtype
        ratio = kept.ratio(dtype)
        self.layout, self.scratch_layout = (network.layout(config, stored, ratio) for stored in (True, False))
        self.fronts, self._scratch_fronts = network.fronts(self.layout), network.fronts(self.scratch_layout)
        """Pages of the front in a page of the pool; 0: see `PagedNetwork`."""
        self.buckets = tuple(sorted(buckets))
        self.euler_steps = 0
        """Euler steps begun since the start, counted for each unit."""
        launch = launch or Launcher(
            chained=device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        )
        if dtype == torch.float32 and not launch.tiles:
            launch = Launcher(launch.chained, EXACT_TILES)
        self.launch = launch
        self.most = max(self.buckets[-1], most or 0)
        """Maximum number of blocks in one pass; more than the largest bucket only for recomputed
        sentences.
        """
        self._long_buckets = tuple(size for size in LONG_BUCKETS if self.buckets[-1] < size <= self.most)
        weights = Tensors(tensors)
        with torch.inference_mode():
            self.pool = torch.zeros(pages * self.layout.elements, dtype=dtype, device=device)
            pages = self.most + 1 + (ceil(self.most, self._scratch_fronts) if self.fronts else 0)
            self._scratch = torch.zeros(pages * self.scratch_layout.elements, dtype=dtype, device=device)
            self._table = UnitTable(self.most, device, front_apart=self.fronts > 0)
            self._front = network.front(config, tensors, self.most, dtype, launch)
            channels = network.barrier_channels(config)
            units = self._barrier_units(channels) if barrier_units is None else barrier_units
            self._estimator = network.estimator(
                config, tensors, self.most, dtype, launch, barrier_units=units, by_head=by_head, kept=kept,
                clusters=clusters,
            )  # fmt: skip
            self._noise = (config.temperature * noise_table()).T.contiguous().to(device)
            self._speaker = Linear.of(weights.within("spk_embed_affine_layer"))
        self._narrow = {Way.LONG: self._estimator.split_units, Way.APART: self._estimator.clustered_units}
        """Maximum units of the ways that are for small batches."""
        self._graphs: dict[tuple[int, Way], torch.cuda.CUDAGraph] = {}

    def _barrier_units(self, channels: int) -> int:
        """Maximum units whose feed-forward programs are all resident, one per multiprocessor; 0 if
        that is not guaranteed, or if another process uses grid barriers on this GPU.
        """
        if self.device.type != "cuda" or self.dtype != torch.bfloat16 or channels not in BARRIER_CHANNELS:
            return 0
        gpu = torch.cuda.get_device_properties(self.device)
        widest = widest_barrier_step(self.buckets, self.launch, channels, gpu.multi_processor_count)
        return widest if widest and claim_grid_barrier(str(gpu.uuid)) else 0

    @property
    def clustered_units(self) -> int:
        """Maximum units of a pass that clusters compute, 0: none."""
        return self._estimator.clustered_units

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return self.layout.elements * self.dtype.itemsize

    @torch.inference_mode()
    def speaker(self, embedding: Tensor) -> Tensor:
        """float32 [192] -> [80] on the device: the embedding at unit length, projected."""
        return self._speaker(F.normalize(embedding.to(self.device, torch.float32), dim=-1))

    @torch.inference_mode()
    def capture(self, ways: Sequence[Way] = tuple(Way)) -> float:
        """Record the graphs of every bucket, which compiles its kernels; returns the seconds it
        took. Without graphs each pass launches a few thousand kernels from Python, while no other
        Python thread runs.
        """
        began = time.perf_counter()
        pool = torch.cuda.graph_pool_handle()
        for way in ways:
            for bucket in reversed(self._sizes(way)):
                if way in self._narrow and bucket > self._narrow[way]:
                    continue
                self._table.fill([self._padding_unit()], bucket)
                self._launch(bucket, way, COMPILING_STEPS)
                torch.cuda.synchronize(self.device)
                graph = torch.cuda.CUDAGraph()
                # Relaxed: a kernel that was not needed before is loaded while it is recorded.
                with torch.cuda.graph(graph, pool=pool, capture_error_mode="relaxed"):
                    self._launch(bucket, way)
                self._graphs[bucket, way] = graph
        torch.cuda.synchronize(self.device)
        return time.perf_counter() - began

    def scratch_front_pages(self, count: int) -> list[int]:
        """Of the first `count` blocks of a sentence that is recomputed, where fronts are apart."""
        first = (self.most + 1) * self._scratch_fronts
        return list(range(first, first + count))

    def run(self, units: Sequence[Unit]) -> Tensor:
        """One pass, at most the largest bucket, or a prompt that is one block: mel float32 [units,
        50, 80], valid until the next pass; frames outside a unit's are invalid. Work is queued on
        the current stream.
        """
        return self._pass(units, self._way(units))

    def recompute(self, units: Sequence[Unit]) -> Tensor:
        """The same for all blocks of one stream from its first on, at most `most`, each with a
        scratch page of 1..most; no page of the pool is read or written.
        """
        return self._pass(units, Way.RECOMPUTED)

    @torch.inference_mode()
    def _pass(self, units: Sequence[Unit], way: Way) -> Tensor:
        bucket = self._bucket(len(units), way)
        self._table.fill(units, bucket)
        graph = self._graphs.get((bucket, way))
        if graph is None:
            self._launch(bucket, way)
        else:
            graph.replay()
        self.euler_steps += EULER_STEPS * len(units)
        return self._estimator.x[: len(units)]

    def _sizes(self, way: Way) -> tuple[int, ...]:
        return self.buckets + self._long_buckets if way is Way.RECOMPUTED else self.buckets

    def _bucket(self, units: int, way: Way) -> int:
        return next((size for size in self._sizes(way) if size >= units), units)

    def _way(self, units: Sequence[Unit]) -> Way:
        # Compare the bucket, not the number of units: the bucket is launched, and the buffers for
        # split keys are limited.
        many = (
            self._bucket(len(units), Way.LONG) <= self._estimator.split_units
            and max(len(unit.pages) for unit in units) > LONG_PAGES
        )
        if many:
            return Way.LONG
        return Way.APART if self._clustered(units) else Way.SHORT

    def _clustered(self, units: Sequence[Unit]) -> bool:
        """Whether clusters compute this batch: a cluster does not wait for another's keys."""
        if self._bucket(len(units), Way.APART) > self._estimator.clustered_units:
            return False
        own = {unit.pages[-1] for unit in units}
        return max(len(unit.pages) for unit in units) <= LONG_PAGES and all(
            own.isdisjoint(unit.pages[:-1]) for unit in units
        )

    def _launch(self, units: int, way: Way, steps: Sequence[int] = range(EULER_STEPS)) -> None:
        pool, layout = (self._scratch, self.scratch_layout) if way is Way.RECOMPUTED else (self.pool, self.layout)
        self._front(self._table, pool, layout, units)
        self._estimator.prepare(self._front.mu, self._noise, self._table, pool, layout, units)
        for step in steps:
            self._estimator.step(step, self._table, pool, layout, units, long=way is Way.LONG, apart=way is Way.APART)

    def _padding_unit(self) -> Unit:
        speaker = torch.zeros_like(self._table.speaker[0])
        return Unit([0], torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), speaker)
