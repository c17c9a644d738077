"""`python -m bench.gpu_token2wav --part PART`: token2wav on one GPU with random weights of the published sizes.

Every part checks or measures one thing, prints a table and writes `PART.json` into --out. Times are medians of CUDA events around
replayed graphs. Floors: bytes over the copy bandwidth, operations over the rate of a large bfloat16 product, both from `--part ceilings`.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from services.token2wav.flow.flow import Flow
from services.token2wav.flow.weights import FlowConfig, expected_tensors
from services.token2wav.gpu import flow as flow_module
from services.token2wav.gpu.flow import PagedFlow, Way
from services.token2wav.gpu.launch import MANY, Launcher, Tile
from services.token2wav.gpu.units import Unit
from services.token2wav.voice_prompt import VoicePrompt

PUBLISHED = FlowConfig(
    vocabulary=6561, speaker=192, input_width=512, encoder_width=512, encoder_heads=8, encoder_feed_forward=2048, encoder_layers=6,
    channels=256, estimator_heads=8, head_width=64, transformers=4, middle=12, guidance=0.7,
)  # fmt: skip
DEVICE = torch.device("cuda")


def random_flow(config: FlowConfig, device: torch.device) -> dict[str, Tensor]:
    """Weights under which activations stay of order one."""
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, shape in expected_tensors(config).items():
        drawn = torch.randn(shape, generator=generator)
        if any(part in name for part in ("norm", "block.2.", "out.1.")):
            drawn = 1 + 0.1 * drawn if name.endswith("weight") else 0.1 * drawn
        else:
            drawn *= 0.7 / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.1
        tensors[name] = drawn.to(device)
    return tensors


def timed(work: Callable[[], Any], repeats: int = 20, warm: int = 3) -> float:
    """Milliseconds, the median."""
    for _ in range(warm):
        work()
    spans = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        spans.append(begin.elapsed_time(end))
    return statistics.median(spans)


def graphed(work: Callable[[], Any]) -> Callable[[], None]:
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class Someone:
    """A voice with a prompt, and tokens to speak; blocks as units over given pages."""

    def __init__(self, flow: Flow | None, prompt: int, tokens: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.voice = VoicePrompt(
            torch.randint(0, 6561, (prompt,), generator=generator),
            torch.randn(2 * prompt, 80, generator=generator),
            torch.randn(192, generator=generator),
        )
        self.ids = torch.cat((self.voice.tokens, torch.randint(0, 6561, (tokens,), generator=generator)))
        self.speaker = flow.speaker(self.voice) if flow is not None else torch.randn(80, device=DEVICE)
        self.blocks = -(-len(self.ids) // 25)

    def unit(self, at: int, pages: list[int]) -> Unit:
        tokens, ahead = self.ids[25 * at : 25 * at + 25], self.ids[25 * at + 25 : 25 * at + 28]
        condition = self.voice.mel[50 * at : 50 * at + 50]
        condition = F.pad(condition, (0, 0, 0, 50 - len(condition))).to(DEVICE) if len(condition) else None
        return Unit(pages[: at + 1], tokens, ahead if len(tokens) == 25 else ahead[:0], self.speaker, condition)

    def reference(self, flow: Flow) -> list[Tensor]:
        state, made = flow.start(self.voice), []
        for at in range(self.blocks):
            unit = self.unit(at, list(range(at + 1)))
            (mel,) = flow.blocks([state], [unit.tokens], [unit.ahead])
            assert mel is not None, state.fault
            made.append(mel.T)
        return made


def apart(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Relative error, and mean absolute distance in log mel units."""
    return float((a - b).norm() / b.norm()), float((a - b).abs().mean())


def correctness(out: Path, kinds: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)) -> dict[str, Any]:
    """Against the readable flow in float32: float32 and bfloat16, cached and recomputed, together and alone, keys whole and split."""
    weights = random_flow(PUBLISHED, DEVICE)
    flow = Flow(PUBLISHED, weights, DEVICE)
    someone, other = Someone(flow, 87, 44, 2), Someone(flow, 40, 60, 3)
    wanted, others = someone.reference(flow), other.reference(flow)
    rows: dict[str, Any] = {}

    def report(name: str, made: list[Tensor], wanted: list[Tensor]) -> None:
        joined = torch.cat([mel[: len(want)] for mel, want in zip(made, wanted, strict=True)])
        rows[name] = apart(joined, torch.cat(wanted))
        print(f"{name:60s} relative {rows[name][0]:.2e}  mean distance {rows[name][1]:.2e}", flush=True)

    for dtype in kinds:
        name, pages = str(dtype)[6:], [3, 5, 2, 9, 7, 1][: someone.blocks]
        paged = PagedFlow(PUBLISHED, weights, pages=16, dtype=dtype, buckets=(1, 2, 4, 8), launch=Launcher(True, TUNED))

        def one_by_one(paged: PagedFlow, pages: list[int] = pages) -> list[Tensor]:
            paged.pool.fill_(float("nan"))
            return [paged.run([someone.unit(at, pages)])[0].clone() for at in range(someone.blocks)]

        eager = one_by_one(paged)
        report(name, eager, wanted)
        flow_module.LONG_PAGES = 0
        report(f"{name}, keys split", one_by_one(paged), wanted)
        flow_module.LONG_PAGES = 8
        paged.pool.fill_(float("nan"))
        report(f"{name}, all blocks in one pass", list(paged.run([someone.unit(at, pages) for at in range(someone.blocks)]).clone()), wanted)
        paged._scratch.fill_(float("nan"))
        units = [someone.unit(at, list(range(1, at + 2))) for at in range(someone.blocks)]
        report(f"{name}, recomputed without pages", list(paged.recompute(units).clone()), wanted)
        if dtype == torch.float32:
            continue
        first = paged.capture((Way.SHORT,))
        print(f"  captured in {first:.1f} s, memory {torch.cuda.memory_allocated() / 2**30:.2f} GiB", flush=True)
        made = one_by_one(paged)
        report(f"{name}, graph against eager", made, eager)
        paged.pool.fill_(float("nan"))
        theirs = [10, 11, 12, 13, 14]
        both: tuple[list[Tensor], list[Tensor]] = ([], [])
        for at in range(max(someone.blocks, other.blocks)):
            pair = [(0, someone.unit(at, pages))] if at < someone.blocks else []
            pair += [(1, other.unit(at, theirs))] if at < other.blocks else []
            for (who, _), mel in zip(pair, paged.run([unit for _, unit in pair]).clone(), strict=True):
                both[who].append(mel)
        report(f"{name}, two streams", both[0] + both[1], wanted + others)
        report(f"{name}, two streams against alone", both[0], made)
        for label, options in (("programs that never meet", {"meeting_units": 0}), ("programs that meet twice", {"meeting_units": 2, "meeting_twice": True})):
            other_way = PagedFlow(PUBLISHED, weights, pages=16, dtype=dtype, buckets=(1, 2), launch=Launcher(True, TUNED), **options)
            report(f"{name}, {label}", one_by_one(other_way), wanted)
            report(f"{name}, {label}, against the default", one_by_one(other_way), eager)
    return rows


def _spread(batch: int, prefix: int) -> list[Unit]:
    """A batch whose streams have pages of their own, block `prefix` of each."""
    own = [list(range(1 + at * (prefix + 1), 1 + (at + 1) * (prefix + 1))) for at in range(batch)]
    one = Someone(None, 0, 25 * prefix + 28, 5)
    return [one.unit(prefix, mine) for mine in own]


def _filled(weights: dict[str, Tensor], pages: int, buckets: tuple[int, ...], **options: Any) -> PagedFlow:
    paged = PagedFlow(PUBLISHED, weights, pages=pages, buckets=buckets, **options)
    for part in paged.pool.split(1 << 28):
        part.normal_(0, 0.5)
    return paged


def passes(out: Path, pages: int = 800) -> dict[str, Any]:
    """Milliseconds of a pass by batch and by blocks of prefix, every stream with pages of its own."""
    weights = random_flow(PUBLISHED, DEVICE)
    rows: dict[str, Any] = {}
    if COMPILE_ONLY:
        paged = PagedFlow(PUBLISHED, weights, pages=2, buckets=SHARD or (1, 2, 4, 8, 16, 32), most=32, launch=Launcher(True, TUNED))
        paged.capture()
        return {}
    paged = _filled(weights, pages, (1, 2, 4, 8, 16, 32), launch=Launcher(True, TUNED))
    seconds = paged.capture()
    print(f"captured in {seconds:.1f} s, page {paged.page_bytes / 2**20:.1f} MiB, {torch.cuda.memory_allocated() / 2**30:.1f} GiB", flush=True)
    for batch in (1, 2, 4, 8, 16, 32):
        for prefix in (0, 3, 13, 33):
            if batch * (prefix + 1) + 1 > pages:
                continue
            units = _spread(batch, prefix)
            paged.run(units)
            spent = timed(paged._graphs[batch, paged._way(units)].replay, 10)
            began = time.perf_counter()
            paged.run(units)
            host = 1000 * (time.perf_counter() - began)
            torch.cuda.synchronize()
            assert bool(torch.isfinite(paged._estimator.x[:batch]).all())
            rows[f"{batch} {prefix + 1}"] = spent
            print(f"batch {batch:3d}  {prefix + 1:3d} blocks: {spent:7.3f} ms  ({spent / batch:6.3f} a stream, host {host:.2f})", flush=True)
    cold = [Someone(None, 87, 41, 7).unit(at, [1, 2, 3, 4]) for at in range(4)]
    for name, units in (("cold", cold), ("kept", cold[3:])):
        rows[name] = timed(lambda units=units: paged.run(units), 20)
    print(f"first chunk behind 87 tokens: cold {rows['cold']:.3f} ms, prompt kept {rows['kept']:.3f} ms, host included", flush=True)
    return rows


LARGE = {"qkv": ((MANY, Tile(128, 128, 64, 8)),), "widen": ((MANY, Tile(128, 128, 64, 8)),)}


def variants(out: Path) -> dict[str, Any]:
    """The same pass with the tiles of the source, and with programs that meet."""
    weights = random_flow(PUBLISHED, DEVICE)
    rows: dict[str, Any] = {}
    ways: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "never meeting": ((1, 2), {"launch": Launcher(True, TUNED), "meeting_units": 0}),
        "meeting twice": ((1, 2), {"launch": Launcher(True, TUNED), "meeting_units": 2, "meeting_twice": True}),
        "norm apart": ((8, 16, 32), {"launch": Launcher(True, TUNED), "norm_apart_units": 8}),
        "norm apart, large": ((16, 32), {"launch": Launcher(True, {**TUNED, **LARGE}), "norm_apart_units": 8}),
        "source's tiles": ((1, 4, 16), {"launch": Launcher(True, {})}),
    }
    for at, (name, (buckets, options)) in enumerate(ways.items()):
        if COMPILE_ONLY and SHARD and at not in SHARD:
            continue
        torch.manual_seed(1)
        paged = _filled(weights, 2 if COMPILE_ONLY else 32 * 14 + 1, buckets, **options)
        if COMPILE_ONLY:
            paged.run([_spread(1, 0)[0]] * buckets[0])
            continue
        paged.capture((Way.SHORT,))
        for batch in buckets:
            for prefix in (3, 13):
                units = _spread(batch, prefix)
                paged.run(units)
                rows[f"{name} {batch} {prefix + 1}"] = spent = timed(paged._graphs[batch, Way.SHORT].replay, 10)
                mean = float(paged._estimator.x[:batch].double().abs().mean())
                print(f"{name:18s} batch {batch:2d} {prefix + 1:2d} blocks: {spent:.3f} ms, mean size of the mel {mean:.9f}", flush=True)
        del paged
        torch.cuda.empty_cache()
    return rows


def recompute(out: Path) -> dict[str, Any]:
    """A pass that makes the last block of a sentence from nothing kept."""
    weights = random_flow(PUBLISHED, DEVICE)
    rows = {}
    paged = PagedFlow(PUBLISHED, weights, pages=2, buckets=(4, 8, 16, 32), launch=Launcher(True, TUNED))
    paged.capture((Way.RECOMPUTED,))
    for blocks in (4, 8, 16, 32):
        one = Someone(None, 0, 25 * blocks, 5)
        units = [one.unit(at, list(range(1, at + 2))) for at in range(blocks)]
        paged.recompute(units)
        rows[str(blocks)] = timed(paged._graphs[blocks, Way.RECOMPUTED].replay, 10)
        print(f"recomputing {blocks:3d} blocks: {rows[str(blocks)]:.3f} ms, scratch {paged.scratch_layout.elements * 2 / 2**20:.2f} MiB a block", flush=True)
    return rows


CHOICES: dict[str, list[Tile]] = {
    "qkv": [
        Tile(16, 64, 64, 4), Tile(16, 128, 64, 4), Tile(16, 128, 64, 8), Tile(32, 64, 64, 8), Tile(32, 128), Tile(64, 128, 64, 8), Tile(64, 128, 64, 8, 3, 2),
        Tile(64, 128, 64, 8, 3, 4), Tile(128, 128, 64, 8),
    ],
    "widen": [
        Tile(16, 64, 64, 4), Tile(16, 128, 64, 4), Tile(16, 128, 64, 8), Tile(32, 64, 64, 8), Tile(32, 128), Tile(64, 128), Tile(64, 128, 64, 8, 3, 2), Tile(64, 128, 64, 8, 3, 4),
        Tile(128, 128, 64, 8),
    ],
    "out": [
        Tile(16, 16, 512, 4), Tile(16, 32, 512, 4), Tile(16, 32, 512, 8), Tile(32, 32, 512, 8), Tile(16, 32, 128), Tile(64, 64, 64, 4, 4), Tile(64, 64, 128), Tile(64, 128, 128, 8),
    ],
    "narrow": [
        Tile(16, 16, 1024, 4), Tile(16, 16, 1024, 8), Tile(16, 32, 1024, 8), Tile(16, 32, 128), Tile(16, 32, 128, 4, 5), Tile(16, 16, 128, 4, 5), Tile(64, 64, 64, 4, 4), Tile(64, 64, 128),
        Tile(64, 64, 256, 4, 2), Tile(64, 128, 128, 8),
    ],
    "convolution": [
        Tile(16, 16, 256, 4), Tile(16, 32, 256, 4), Tile(16, 32, 256, 8), Tile(32, 32, 256, 8), Tile(32, 32, 128), Tile(16, 64, 128), Tile(64, 64, 64, 4, 4), Tile(64, 64, 64, 8),
        Tile(128, 64, 64, 8),
    ],
    "attention": [Tile(0, 0, 0, 4, stages) for stages in (4, 5, 6, 8)],
}  # fmt: skip
CLASSES = {1: 200, 4: 400, 8: 800, 16: MANY}
"""Units that are measured, and rows up to which the best tile for them is taken."""


def _chain(paged: PagedFlow, kind: str, units: int) -> Callable[[], None]:
    """All launches of one kind in a pass's first Euler step, one after the other, and how many."""
    e = paged._estimator
    wanted = {
        "qkv": "queries_keys_values", "widen": "normed_linear", "convolution": "causal_convolution", "rows": "norm_mish",
        "attention": "paged_attention",
    }.get(kind)  # fmt: skip

    def run() -> None:
        e.step(0, paged._table, paged.pool, paged.layout, units)

    original = e._launch

    class Only(Launcher):
        def __call__(self, kernel: Any, grid: Any, *arguments: Any, **constants: Any) -> None:
            name = kernel.__name__ if hasattr(kernel, "__name__") else kernel.fn.__name__
            if wanted is not None and name == wanted:
                super().__call__(kernel, grid, *arguments, **constants)
            elif wanted is None and name == "onto_residual" and (constants["K"] == 512) == (kind == "out"):
                super().__call__(kernel, grid, *arguments, **constants)

    def only() -> None:
        e._launch = Only(original.chained, original.tiles)
        try:
            run()
        finally:
            e._launch = original

    return only


LAUNCHES = {"qkv": 56, "widen": 56, "out": 56, "narrow": 56, "convolution": 31, "rows": 28, "attention": 56}


def tuning(out: Path, kinds: tuple[str, ...] = tuple(CHOICES)) -> dict[str, Any]:
    """Microseconds of a launch by kind, rows and tile; the best become the tiles of the parts that follow (--tiles)."""
    weights = random_flow(PUBLISHED, DEVICE)
    rows: dict[str, Any] = {}
    for kind in kinds:
        found: dict[int, list[tuple[float, Tile]]] = {}
        for tile in CHOICES[kind][SHARD[0] :: 3] if SHARD else CHOICES[kind]:
            try:
                paged = _tuned(weights, Launcher(True, {kind: ((MANY, tile),)}))
                for units in CLASSES:
                    if COMPILE_ONLY:
                        _chain(paged, kind, 1)()
                        break
                    if tile.rows and (tile.rows < units or (units == 1 and tile.rows > 64)):
                        continue
                    spent = 1000 * timed(graphed(_chain(paged, kind, units)), 7, 2) / LAUNCHES[kind]
                    found.setdefault(units, []).append((spent, tile))
            except Exception as error:
                print(kind, tile, "failed:", str(error).splitlines()[0][:100], flush=True)
        for units, choices in sorted(found.items()):
            choices.sort(key=lambda pair: pair[0])
            rows[f"{kind} {units}"] = [(spent, vars(tile)) for spent, tile in choices]
            best = ", ".join(f"{spent:.2f} us {t.rows}x{t.columns}x{t.inner} w{t.warps} s{t.stages} l{t.loop}" for spent, t in choices[:4])
            print(f"{kind:12s} {units:3d} units: {best} ... worst {choices[-1][0]:.1f}", flush=True)
        if found:
            chosen = [(CLASSES[units], vars(choices[0][1])) for units, choices in sorted(found.items())]
            (out / f"tiles-{kind}.json").write_text(json.dumps(chosen))
    return rows


def tuned_tiles(out: Path) -> dict[str, tuple[tuple[int, Tile], ...]]:
    """What the tuning of this run found best; {} where there was none."""
    found = {}
    for path in sorted(out.glob("tiles-*.json")):
        found[path.stem.removeprefix("tiles-")] = tuple((most, Tile(**tile)) for most, tile in json.loads(path.read_text()))
    return found


_KEPT: dict[str, PagedFlow] = {}
COMPILE_ONLY = False
SHARD: tuple[int, ...] = ()
TUNED: dict[str, tuple[tuple[int, Tile], ...]] = {}


def _tuned(weights: dict[str, Tensor], launch: Launcher) -> PagedFlow:
    paged = _KEPT.get("one")
    if paged is None:
        paged = _KEPT["one"] = PagedFlow(PUBLISHED, weights, pages=4 if COMPILE_ONLY else 140, buckets=(32,), launch=launch)
        for part in paged.pool.split(1 << 28):
            part.normal_(0, 0.5)
        one = Someone(None, 0, 103, 5)
        own = [[0] * 4 if COMPILE_ONLY else [4 * at + 1, 4 * at + 2, 4 * at + 3, 4 * at + 4] for at in range(32)]
        paged._table.fill([one.unit(3, mine) for mine in own], 32)
    paged._estimator._launch = launch
    return paged


def profile(out: Path) -> dict[str, Any]:
    """Kernels of one pass, by time."""
    weights = random_flow(PUBLISHED, DEVICE)
    for batch in (1, 16):
        paged = _filled(weights, 16 * 4 + 1, (batch,), launch=Launcher(True, TUNED))
        units = _spread(batch, 3)
        paged.run(units)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
            paged.run(units)
            torch.cuda.synchronize()
        print(f"batch {batch}, 4 blocks")
        print(recorded.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=40), flush=True)
        del paged
        torch.cuda.empty_cache()
    return {}


def readable(out: Path) -> dict[str, Any]:
    """The slow path on the same GPU: readable flow and vocoder, eager, float32."""
    from bench.vocoder_window import of_published_size
    from services.token2wav.vocoder import window

    flow = Flow(PUBLISHED, random_flow(PUBLISHED, DEVICE), DEVICE)
    rows: dict[str, Any] = {}
    someone = Someone(flow, 87, 41, 2)
    state = flow.start(someone.voice)
    for at in range(4):
        if at == 3:
            kept = flow.fork(state)
        unit = someone.unit(at, list(range(at + 1)))
        flow.blocks([state], [unit.tokens], [unit.ahead])

    def warm() -> None:
        flow.blocks([flow.fork(kept)], [unit.tokens], [unit.ahead])

    rows["flow block behind 87 tokens"] = timed(warm, 5, 1)
    vocoder = of_published_size(DEVICE)
    mel = torch.randn(80, 400, device=DEVICE)
    for frames in (10, 50):
        window.WINDOW_FRAMES = frames
        state_v = vocoder.start(0, 0, 26)
        spans = []
        for begin in range(0, 350, 50):
            torch.cuda.synchronize()
            began = time.perf_counter()
            vocoder.step([state_v], [mel[:, begin : begin + 50]], [False])
            torch.cuda.synchronize()
            spans.append(1000 * (time.perf_counter() - began))
        rows[f"vocoder chunk of 50 frames, windows of {frames}"] = statistics.median(spans[3:])
    for name, spent in rows.items():
        print(f"readable path, {name}: {spent:.2f} ms", flush=True)
    return rows


def ceilings(out: Path) -> dict[str, Any]:
    """Copy bandwidth and a large bfloat16 product."""
    a = torch.empty(4 << 30, dtype=torch.uint8, device=DEVICE).random_()
    b = torch.empty_like(a)
    copy = 2 * a.numel() / timed(lambda: b.copy_(a), 10) / 1e9
    x, y = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * 8192**3 / timed(lambda: x @ y, 10) / 1e9
    empty = torch.zeros(1, device=DEVICE)

    def many() -> None:
        for _ in range(1000):
            empty.add_(1)

    launch = 1000 * timed(graphed(many), 5) / 1000
    print(f"copy {copy:.2f} TB/s, product {rate:.0f} TFLOP/s, smallest kernel in a graph {launch:.2f} us")
    return {"copy_terabytes_per_second": copy / 1, "product_teraflops": rate, "kernel_us": launch}


def random_vocoder() -> tuple[Any, dict[str, Tensor]]:
    """Configuration and weights of the published sizes, small enough that nothing saturates."""
    from dataclasses import replace

    from cosyserve.model_directory import ModelDirectory
    from services.token2wav.vocoder.config import read_config
    from services.token2wav.vocoder.weights import expected_tensors as tensors_of

    config = replace(read_config(ModelDirectory(Path("tests/golden/tiny"))), base_channels=512, f0_channels=512)
    generator, weights = torch.Generator().manual_seed(0), {}
    for name, shape in tensors_of(config).items():
        if name.endswith("original0"):
            continue
        scale = (0.5 / math.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.01
        fused = name.replace(".parametrizations.weight.original1", ".weight")
        weights[fused] = torch.ones(shape) if name.endswith("alpha") else scale * torch.randn(shape, generator=generator)
    weights["f0_predictor.classifier.bias"] = torch.tensor([150.0])
    return config, weights


def vocoder(out: Path, precisions: tuple[str, ...] = ("tf32x3", "tf32"), tiles: dict[str, Tile] | None = None) -> dict[str, Any]:
    """Windows against the readable vocoder's whole sentence, then milliseconds of a window by batch."""
    from services.token2wav.gpu.vocoder import Render, WindowedVocoder
    from services.token2wav.vocoder.vocoder import Vocoder

    config, weights = random_vocoder()
    if COMPILE_ONLY:
        made = WindowedVocoder(config, weights, DEVICE, slots=2, buckets=(1,), launch=Launcher(True, TUNED), precision=precisions[0])
        levels = made._network._levels
        for at in SHARD or range(len(levels)):
            if at > 0:  # a level by itself: what it is given has the right shape and says nothing
                before = levels[at - 1]
                first = end = torch.zeros(32, dtype=torch.int32, device=DEVICE)
                columns = before._merged.stop - before._merged.start
                levels[at](before._sound.raw, columns, before._merged.start, before._variants, made._spectrum, first, end, 1)
        if not SHARD or 0 in SHARD:
            del levels[1:]
            made.run([Render(1, 0, 30, None, 1, 0)])
        torch.cuda.synchronize()
        return {}
    plain = Vocoder(config, weights, DEVICE)
    frames, seed = 237, 0x123456789AB
    mel = torch.randn(80, frames, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    wanted = plain.offline(mel, seed, 3)
    rows: dict[str, Any] = {}
    for precision in precisions:
        for name, tile in (tiles or {"": Tile(64, 64, 64)}).items():
            began = time.perf_counter()
            made = WindowedVocoder(config, weights, DEVICE, slots=40, launch=Launcher(True, TUNED), precision=precision)
            made.capture()
            seconds = time.perf_counter() - began
            pieces, first, received = [], 0, 0
            made.forget(7)
            for have, ended in ((26, False), (76, False), (126, False), (176, False), (226, False), (frames, True)):
                made.write([7], [received], [mel.T[received:have]])
                received = have
                while count := min(50, (frames - first if ended else have - made.hold_back_frames - first)):
                    sound = made.run([Render(7, first, count, frames if ended else None, seed, 3)])[0, : 480 * count]
                    pieces.append(sound.clone())
                    first += count
            rows[f"{precision} error"] = apart(torch.cat(pieces), wanted)
            peak = float((torch.cat(pieces) - wanted).abs().max())
            print(f"vocoder {precision} {name}: relative {rows[f'{precision} error'][0]:.2e}, largest {peak:.2e} of {float(wanted.abs().max()):.2f}, captured in {seconds:.1f} s", flush=True)
            for batch in (1, 2, 4, 8, 16, 32):
                made.run([Render(at + 1, 0, 30, None, at, 0) for at in range(batch)])
                rows[f"{precision} {name} {batch}"] = timed(made._graphs[batch].replay, 20)
                print(f"vocoder {precision} {name} batch {batch:2d}: {rows[f'{precision} {name} {batch}']:.3f} ms a window of 50 frames", flush=True)
            del made
    made = WindowedVocoder(config, weights, DEVICE, slots=40, buckets=(1,), launch=Launcher(True), precision=precisions[0])
    made.run([Render(1, 0, 30, None, 1, 0)])
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        made.run([Render(1, 0, 30, None, 1, 0)])
        torch.cuda.synchronize()
    for event in sorted(recorded.key_averages(), key=lambda each: -each.self_device_time_total)[:7]:
        print(f"   {event.key[:60]:60s} {event.self_device_time_total:8.0f} us in {event.count}", flush=True)
    return rows


def _decoder(pages: int, dtype: torch.dtype = torch.bfloat16, graphs: bool = True) -> Any:
    from services.token2wav.gpu.decoder import PagedDecoder
    from services.token2wav.gpu.vocoder import WindowedVocoder

    config, weights = random_vocoder()
    began = time.perf_counter()
    tuned = Launcher(True, TUNED) if dtype == torch.bfloat16 else None
    flow = PagedFlow(PUBLISHED, random_flow(PUBLISHED, DEVICE), pages=pages, dtype=dtype, most=64, launch=tuned)
    precision = "tf32" if dtype == torch.bfloat16 else "ieee"
    vocoder = WindowedVocoder(config, weights, DEVICE, slots=300, launch=flow.launch, precision=precision)
    if graphs:
        flow.capture()
        vocoder.capture()
    print(f"decoder of {pages} pages ready after {time.perf_counter() - began:.1f} s, {torch.cuda.memory_allocated() / 2**30:.1f} GiB", flush=True)
    return PagedDecoder(flow, vocoder, pages=pages, slots=300, widest_step=32, prompt_pages=100)


def _voice(prompt: int, key: str) -> Any:
    import numpy as np

    from services.token2wav.request import Voice

    draw = np.random.default_rng(1)
    mel, embedding = draw.standard_normal((2 * prompt, 80)), draw.standard_normal(192)
    return Voice(draw.integers(0, 6561, prompt), mel.astype(np.float32), embedding.astype(np.float32), key)


def decoder(out: Path) -> dict[str, Any]:
    """The decoder's samples, streams together, alone and with a kept prompt, against the readable vocoder over the paged flow's mel."""
    import numpy as np

    from services.token2wav.continuous import as_prompt
    from services.token2wav.decoder import Stride
    from services.token2wav.request import Sentence
    from services.token2wav.vocoder.vocoder import Vocoder

    config, weights = random_vocoder()
    plain = Vocoder(config, weights, DEVICE)
    fast = _decoder(60)
    cases = [(87, 60), (0, 77), (30, 5), (110, 101)]

    def tokens_of(at: int) -> Any:
        return np.random.default_rng(at).integers(0, 6561, cases[at][1])

    def wanted_of(at: int) -> Tensor:
        flow, voice = fast._flow, as_prompt(_voice(cases[at][0], ""))
        ids, mels = torch.cat([voice.tokens, torch.from_numpy(tokens_of(at))]), []
        for first in range(0, len(ids), 25):
            part, block = ids[first : first + 25], first // 25
            condition = voice.mel[50 * block : 50 * block + 50]
            condition = F.pad(condition, (0, 0, 0, 50 - len(condition))).to(DEVICE)
            ahead = ids[first + 25 : first + 28] if len(part) == 25 else ids[:0]
            unit = Unit(list(range(59 - block, 60))[::-1], part, ahead, flow.speaker(voice.embedding), condition)
            mels.append(flow.run([unit])[0, : 2 * len(part)].clone())
        return plain.offline(torch.cat(mels)[2 * cases[at][0] :].T.contiguous(), 1 << 40 | at, at).cpu()

    def speak(which: list[int], key: str = "") -> list[Tensor]:
        sentences = [Sentence(_voice(cases[at][0], key), seed=1 << 40 | at, sentence_index=at) for at in which]
        states = [fast.start(sentence) for sentence in sentences]
        made: list[list[Any]] = [[] for _ in which]
        todo = list(range(len(which)))
        while todo:
            strides = []
            for at in todo:
                end = cases[which[at]][0] + cases[which[at]][1]
                until = min(states[at].position // 25 * 25 + 25, end)
                strides.append(Stride(states[at], tokens_of(which[at]), until, until == end))
            for at, stride, result in zip(list(todo), strides, fast.step(strides), strict=True):
                made[at].append(result.samples)
                if stride.final:
                    todo.remove(at)
        return [torch.from_numpy(np.concatenate(pieces)) for pieces in made]

    everyone = list(range(len(cases)))
    wanted = [wanted_of(at) for at in everyone]
    together = speak(everyone)
    rows: dict[str, Any] = {}
    for at in everyone:
        alone = speak([at])[0]
        speak([at], "kept")
        kept = speak([at], "kept")[0]
        errors = [apart(x, y)[0] for x, y in ((together[at], wanted[at]), (alone, together[at]), (kept, alone))]
        rows[str(at)] = errors
        print(
            f"decoder {cases[at]}: {len(wanted[at])} samples ({len(together[at])} made), relative to readable {errors[0]:.2e}, alone to together {errors[1]:.2e}, "
            f"kept prompt to alone {errors[2]:.2e}", flush=True,
        )  # fmt: skip
    return rows


async def _listen(batcher: Any, sentence: Any, tokens: list[int], pace: float | None) -> dict[str, float]:
    """One stream; pace: tokens a second, None: all at once. A player starts with the first sound; `late` is how long it stood still."""
    import asyncio

    from services.token2wav.stream import AcousticStream

    began = time.perf_counter()
    first = late = plays_until = 0.0
    samples = 0
    async with AcousticStream(batcher, sentence) as stream:

        async def feed() -> None:
            for at in range(0, len(tokens), 25):
                if pace:
                    await asyncio.sleep(max(0.0, began + min(at + 25, len(tokens)) / pace - time.perf_counter()))
                await stream.feed(tokens[at : at + 25])
            await stream.finish()

        feeding = asyncio.create_task(feed())
        async for piece in stream:
            now = time.perf_counter()
            if not piece.audio:
                continue
            if not first:
                first, plays_until = now - began, now
            late += max(0.0, now - plays_until)
            plays_until = max(plays_until, now) + len(piece.audio) / 48000
            samples += len(piece.audio) // 2
        await feeding
    return {"first": first, "late": late, "audio": samples / 24000, "wall": time.perf_counter() - began}


def streams(out: Path, most_pages: int = 900) -> dict[str, Any]:
    """Through the batcher: streams of ten seconds at once, and of several lengths alone; voice of 87 prompt tokens."""
    import asyncio

    import numpy as np

    from services.token2wav.batcher import Batcher
    from services.token2wav.budget import Limits
    from services.token2wav.request import Profile, Sentence

    decoder = _decoder(most_pages)
    rows: dict[str, Any] = {}

    def tokens(count: int, seed: int) -> list[int]:
        return np.random.default_rng(seed).integers(0, 6561, count).tolist()

    async def run() -> None:
        batcher = Batcher({Profile.CONTINUOUS: decoder}, Limits(max_streams=256, state_bytes=most_pages * decoder._flow.page_bytes, reserve_tokens=100))
        try:
            for name in ("cold", "cold", "kept", "kept", "kept"):
                decoder._prompts.evict() if name == "cold" else None
                got = await _listen(batcher, Sentence(_voice(87, "v"), seed=1), tokens(50, 1), None)
                print(f"first sound alone, prompt {name}: {1000 * got['first']:.2f} ms", flush=True)
                rows[f"first {name}"] = got["first"]
            for seconds in (4, 10, 30):
                runs = [await _listen(batcher, Sentence(_voice(87, "v"), seed=2), tokens(25 * seconds, 2), None) for _ in range(3)]
                wall = statistics.median(run["wall"] for run in runs)
                rows[f"alone {seconds}"] = wall / seconds
                print(f"alone, {seconds:2d} s of audio: {1000 * wall / seconds:.2f} ms a second of audio", flush=True)
            for pace in (None, 400.0):
                for count in (1, 8, 16, 32, 64, 128) if pace is None else (1, 8, 32, 64):
                    if count * 14 > most_pages + 1000:
                        continue
                    torch.cuda.reset_peak_memory_stats()
                    before = decoder.recomputed
                    began = time.perf_counter()
                    everyone = (_listen(batcher, Sentence(_voice(87, "v"), seed=at), tokens(250, at), pace) for at in range(count))
                    got = await asyncio.gather(*everyone, return_exceptions=True)
                    wall = time.perf_counter() - began
                    fine = [each for each in got if isinstance(each, dict)]
                    firsts = sorted(each["first"] for each in fine) or [0.0]
                    audio = sum(each["audio"] for each in fine)
                    row = {
                        "streams": count, "served": len(fine), "audio_per_second": audio / wall, "first_p50": firsts[len(firsts) // 2],
                        "first_p95": firsts[int(0.95 * (len(firsts) - 1))], "with_gaps": sum(each["late"] > 0.001 for each in fine),
                        "late": max((each["late"] for each in fine), default=0), "recomputed": decoder.recomputed - before,
                    }  # fmt: skip
                    rows[f"{count} {pace}"] = row
                    print(
                        f"{count:3d} streams, tokens {'at once' if pace is None else f'{pace:.0f}/s'}: served {len(fine)}, {row['audio_per_second']:.0f} s of audio a second, "
                        f"first sound p50 {1000 * row['first_p50']:.1f} p95 {1000 * row['first_p95']:.1f} ms, {row['with_gaps']} with gaps (longest {1000 * row['late']:.0f} ms), "
                        f"recomputed {row['recomputed']} blocks", flush=True,
                    )  # fmt: skip
                    refused = [each for each in got if not isinstance(each, dict)]
                    if refused:
                        print("   refused:", len(refused), repr(refused[0])[:160], flush=True)
            print(f"longest step {batcher.stats().longest_step_seconds:.3f} s, peak state {batcher.stats().peak_state_bytes / 2**30:.1f} GiB, pages free {decoder._pages.free}")
        finally:
            await asyncio.to_thread(batcher.close)

    asyncio.run(run())
    return rows


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "ceilings": ceilings, "correctness": correctness, "passes": passes, "variants": variants, "recompute": recompute, "tuning": tuning,
    "profile": profile, "vocoder": vocoder, "decoder": decoder, "streams": streams, "readable": readable,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--part", required=True, choices=[*PARTS, "vocoder-tf32x3", "vocoder-tf32", "vocoder-bfloat16", "vocoder-ieee", "correctness-float32", "correctness-bfloat16", *(f"tuning-{kind}" for kind in CHOICES)])
    parser.add_argument("--compile", action="store_true", help="of a tuning part: fill the compiler's cache, time nothing")
    parser.add_argument("--tiles", action="store_true", help="with the tiles that a tuning part has left in --out")
    parser.add_argument("--sound", type=int, nargs=5, help="tile of the vocoder's convolutions: rows, columns, inner, warps, stages")
    parser.add_argument("--shard", type=int, nargs="*", default=[], help="of a part to compile: buckets of the flow, levels of the vocoder")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    options = parser.parse_args()
    global COMPILE_ONLY, SHARD
    if options.sound:
        TUNED["sound"] = ((MANY, Tile(*options.sound)),)
    if options.tiles:
        TUNED.update(tuned_tiles(options.out))
    COMPILE_ONLY, SHARD = options.compile, tuple(options.shard)
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with torch.inference_mode():
        made = _run(options)
    (options.out / f"{options.part}.json").write_text(json.dumps(made, indent=1))
    print(f"== {options.part} took {time.perf_counter() - began:.1f} s", flush=True)


def _run(options: argparse.Namespace) -> dict[str, Any]:
    name, _, kind = options.part.partition("-")
    if name == "tuning" and kind:
        return tuning(options.out, (kind,))
    if name == "vocoder" and kind:
        return vocoder(options.out, (kind,))
    if name == "correctness" and kind:
        return correctness(options.out, (getattr(torch, kind),))
    return PARTS[options.part](options.out)


if __name__ == "__main__":
    main()
