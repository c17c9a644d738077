"""Parts that compare tiles and ways of launching."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import DEVICE, PUBLISHED, RUN, RandomVoice, filled, graphed, random_flow, spread
from services.token2wav.gpu.device.launcher import MANY, Launcher, Tile
from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way

CHOICES: dict[str, list[Tile]] = {
    "qkv": [
        Tile(16, 64, 64, 4), Tile(16, 128, 64, 4), Tile(16, 128, 64, 8), Tile(32, 64, 64, 8), Tile(32, 128),
        Tile(64, 128, 64, 8),
        Tile(64, 128, 64, 8, 3, 2),
        Tile(64, 128, 64, 8, 3, 4), Tile(128, 128, 64, 8),
    ],
    "widen": [
        Tile(16, 64, 64, 4), Tile(16, 128, 64, 4), Tile(16, 128, 64, 8), Tile(32, 64, 64, 8), Tile(32, 128),
        Tile(64, 128),
        Tile(64, 128, 64, 8, 3, 2), Tile(64, 128, 64, 8, 3, 4),
        Tile(128, 128, 64, 8),
    ],
    "out": [
        Tile(16, 16, 512, 4), Tile(16, 32, 512, 4), Tile(16, 32, 512, 8), Tile(32, 32, 512, 8), Tile(16, 32, 128),
        Tile(64, 64, 64, 4, 4), Tile(64, 64, 128), Tile(64, 128, 128, 8),
    ],
    "narrow": [
        Tile(16, 16, 1024, 4), Tile(16, 16, 1024, 8), Tile(16, 32, 1024, 8), Tile(16, 32, 128), Tile(16, 32, 128, 4, 5),
        Tile(16, 16, 128, 4, 5), Tile(64, 64, 64, 4, 4), Tile(64, 64, 128),
        Tile(64, 64, 256, 4, 2), Tile(64, 128, 128, 8),
    ],
    "convolution": [
        Tile(16, 16, 256, 4), Tile(16, 32, 256, 4), Tile(16, 32, 256, 8), Tile(32, 32, 256, 8), Tile(32, 32, 128),
        Tile(16, 64, 128),
        Tile(64, 64, 64, 4, 4), Tile(64, 64, 64, 8),
        Tile(128, 64, 64, 8),
    ],
    "attention": [Tile(0, 0, 0, 4, stages) for stages in (4, 5, 6, 8)],
}  # fmt: skip


CLASSES = {1: 200, 4: 400, 8: 800, 16: MANY}
"""Units that are measured, and rows up to which the best tile for them is taken."""


LAUNCHES = {"qkv": 56, "widen": 56, "out": 56, "narrow": 56, "convolution": 31, "rows": 28, "attention": 56}


_KEPT: dict[str, PagedFlow] = {}


def tuning(out: Path, kinds: tuple[str, ...] = tuple(CHOICES)) -> dict[str, Any]:
    """Microseconds of a launch by kind, rows and tile; the best become the tiles of the parts that
    follow (--tiles).
    """
    weights = random_flow(PUBLISHED, DEVICE)
    rows: dict[str, Any] = {}
    for kind in kinds:
        fastest: dict[int, list[tuple[float, Tile]]] = {}
        for tile in CHOICES[kind][RUN.shard[0] :: 3] if RUN.shard else CHOICES[kind]:
            try:
                paged = _tuned(weights, Launcher(True, {kind: ((MANY, tile),)}))
                for units in CLASSES:
                    if RUN.compile_only:
                        _chain(paged, kind, 1)()
                        break
                    if tile.rows and (tile.rows < units or (units == 1 and tile.rows > 64)):
                        continue
                    spent = 1000 * timed(graphed(_chain(paged, kind, units)), 7, 2) / LAUNCHES[kind]
                    fastest.setdefault(units, []).append((spent, tile))
            except Exception as error:
                print(kind, tile, "failed:", str(error).splitlines()[0][:100], flush=True)
        for units, choices in sorted(fastest.items()):
            choices.sort(key=lambda pair: pair[0])
            rows[f"{kind} {units}"] = [(spent, vars(tile)) for spent, tile in choices]
            best = ", ".join(
                f"{spent:.2f} us {t.rows}x{t.columns}x{t.inner} w{t.warps} s{t.stages} l{t.loop}"
                for spent, t in choices[:4]
            )
            print(f"{kind:12s} {units:3d} units: {best} ... worst {choices[-1][0]:.1f}", flush=True)
        if fastest:
            chosen = [(CLASSES[units], vars(choices[0][1])) for units, choices in sorted(fastest.items())]
            (out / f"tiles-{kind}.json").write_text(json.dumps(chosen))
    return rows


def tuned_tiles(out: Path) -> dict[str, tuple[tuple[int, Tile], ...]]:
    """What the tuning of this run found best; {} where there was none."""
    tiles = {}
    for path in sorted(out.glob("tiles-*.json")):
        tiles[path.stem.removeprefix("tiles-")] = tuple(
            (most, Tile(**tile)) for most, tile in json.loads(path.read_text())
        )
    return tiles


def _tuned(weights: dict[str, Tensor], launch: Launcher) -> PagedFlow:
    paged = _KEPT.get("one")
    if paged is None:
        paged = _KEPT["one"] = PagedFlow(
            PUBLISHED, weights, pages=4 if RUN.compile_only else 140, buckets=(32,), launch=launch
        )
        for part in torch.split(paged.pool, 1 << 28):
            part.normal_(0, 0.5)
        one = RandomVoice(None, 0, 103, 5)
        own = [[0] * 4 if RUN.compile_only else [4 * at + 1, 4 * at + 2, 4 * at + 3, 4 * at + 4] for at in range(32)]
        paged._table.fill([one.unit(3, mine) for mine in own], 32)
    paged._estimator._launch = launch
    return paged


def _chain(paged: PagedFlow, kind: str, units: int) -> Callable[[], None]:
    """All launches of one kind in a pass's first Euler step, one after the other, and how many."""
    e = paged._estimator
    wanted = {
        "qkv": "queries_keys_values", "widen": "normed_linear", "convolution": "causal_convolution",
        "rows": "norm_mish",
        "attention": "paged_attention",
    }.get(kind)  # fmt: skip

    def run() -> None:
        e.step(0, paged._table, paged.pool, paged.layout, units)

    original = e._launch

    class Only(Launcher):
        def __call__(self, kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
            name = kernel.__name__ if hasattr(kernel, "__name__") else kernel.fn.__name__
            onto = wanted is None and name == "onto_residual" and (constants["K"] == 512) == (kind == "out")
            if onto or (wanted is not None and name == wanted):
                super().__call__(kernel, grid, *arguments, **constants)

    def only() -> None:
        e._launch = Only(original.chained, original.tiles)
        try:
            run()
        finally:
            e._launch = original

    return only


@torch.inference_mode()
def variants(out: Path) -> dict[str, Any]:
    """The same pass with a product a launch, with attention by itself where feed-forwards meet, as
    it is served, and with the tiles of the source."""
    weights = random_flow(PUBLISHED, DEVICE)
    rows = RUN.results
    tuned = Launcher(True, RUN.tuned)
    ways: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "a product a launch": ((1, 2, 4), {"launch": tuned, "barrier_units": 0}),
        "attention by itself": ((1, 2, 4), {"launch": tuned, "by_head": 0}),
        "as served": ((1, 2, 4), {"launch": tuned}),
        "source's tiles": ((1, 4, 16), {"launch": Launcher(True, {})}),
    }
    for at, (name, (buckets, options)) in enumerate(ways.items()):
        if RUN.compile_only and RUN.shard and at not in RUN.shard:
            continue
        torch.manual_seed(1)
        paged = filled(weights, 2 if RUN.compile_only else 32 * 14 + 1, buckets, **options)
        if RUN.compile_only:
            for batch in buckets:
                paged._table.fill([paged._padding_unit()], batch)
                paged._launch(batch, Way.SHORT)
            continue
        paged.capture((Way.SHORT,))
        for batch in buckets:
            for prefix in (3, 13):
                # Not as it would be served: with many pages small batches split their keys.
                paged._table.fill(spread(batch, prefix), batch)
                rows[f"{name} {batch} {prefix + 1}"] = spent = timed(paged._graphs[batch, Way.SHORT].replay, 10)
                mean = float(paged._estimator.x[:batch].double().abs().mean())
                print(
                    f"{name:20s} batch {batch:2d} {prefix + 1:2d} blocks: {spent:.3f} ms, mean size of the mel "
                    f"{mean:.9f}",
                    flush=True,
                )
        del paged
        torch.cuda.empty_cache()
    return rows


def profile(out: Path) -> dict[str, Any]:
    """Kernels of one pass, by time."""
    weights = random_flow(PUBLISHED, DEVICE)
    for batch in (1, 16):
        paged = filled(weights, 16 * 4 + 1, (batch,), launch=Launcher(True, RUN.tuned))
        units = spread(batch, 3)
        paged.run(units)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
            paged.run(units)
            torch.cuda.synchronize()
        print(f"batch {batch}, 4 blocks")
        print(
            recorded.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=40), flush=True
        )
        del paged
        torch.cuda.empty_cache()
    return {}
