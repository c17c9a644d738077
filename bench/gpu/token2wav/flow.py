"""Parts about the flow: is it right, and what does a pass cost by batch and prefix."""

import time
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from bench.gpu.parts import state_bytes
from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import RUN, CountingLauncher, RandomVoice, apart, filled, published, spread
from services.token2wav.gpu.device.launcher import Launcher
from services.token2wav.gpu.paged_flow import flow as flow_module
from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way
from services.token2wav.gpu.paged_flow.unit_table import Unit

AGAIN = (4, 8, 16, 32, 64, 128)
"""Blocks of sentences that are made again."""


def made(run: Callable[[list[Unit]], Tensor], units: list[Unit]) -> list[Tensor]:
    """The mel of a pass, float32 [frames, 80] of each unit."""
    return [mel[unit.frames].clone() for mel, unit in zip(run(units), units, strict=True)]


def scratch_units(paged: PagedFlow[Any], one: RandomVoice) -> list[Unit]:
    """All units of a sentence that is recomputed."""
    pages = list(range(1, one.blocks + 1))
    front_pages = paged.scratch_front_pages(one.blocks) if paged.fronts else None
    return [one.unit(at, pages, front_pages) for at in range(one.blocks)]


def correctness(dtype: torch.dtype) -> None:
    """Against the readable flow in float32: cached and recomputed, together and alone, keys whole
    and split.
    """
    weights = published().tensors()
    flow = published().readable(weights)
    someone, other = RandomVoice(flow, 87, 44, 2, front=15), RandomVoice(flow, 40, 60, 3, front=8)
    wanted, others = someone.reference(flow), other.reference(flow)
    rows = RUN.results

    def report(name: str, mels: list[Tensor], wanted: list[Tensor]) -> None:
        joined = torch.cat(mels)
        rows[name] = apart(joined, torch.cat(wanted))
        print(f"{name:60s} relative {rows[name][0]:.2e}  mean distance {rows[name][1]:.2e}", flush=True)

    name, pages = str(dtype)[6:], [3, 5, 2, 9, 7, 1][: someone.blocks]
    paged = published().paged_flow(weights, pages=16, dtype=dtype, buckets=(1, 2, 4, 8))

    def one_by_one(paged: PagedFlow[Any], pages: list[int] = pages) -> list[Tensor]:
        paged.pool.fill_(float("nan"))
        return [mel for group in someone.passes for mel in made(paged.run, [someone.unit(at, pages) for at in group])]

    eager = one_by_one(paged)
    report(name, eager, wanted)
    flow_module.LONG_PAGES = 0
    report(f"{name}, keys split", one_by_one(paged), wanted)
    flow_module.LONG_PAGES = 8
    paged.pool.fill_(float("nan"))
    whole = made(paged.run, [someone.unit(at, pages) for at in range(someone.blocks)])
    report(f"{name}, all blocks in one pass", whole, wanted)
    paged.pool.fill_(float("nan"))
    report(
        f"{name}, four blocks in one pass",
        made(paged.run, [someone.unit(at, pages) for at in range(4)]),
        wanted[:4],
    )
    paged._scratch.fill_(float("nan"))
    report(f"{name}, recomputed without pages", made(paged.recompute, scratch_units(paged, someone)), wanted)
    if dtype == torch.float32:
        return
    first = paged.capture((Way.SHORT, Way.APART))
    print(f"  captured in {first:.1f} s, memory {torch.cuda.memory_allocated() / 2**30:.2f} GiB", flush=True)
    alone = one_by_one(paged)
    report(f"{name}, graph against eager", alone, eager)
    paged.pool.fill_(float("nan"))
    theirs = [10, 11, 12, 13, 14]
    both: tuple[list[Tensor], list[Tensor]] = ([], [])
    for ours, others_ in zip_longest(someone.passes, other.passes):
        pair = [(0, someone.unit(at, pages)) for at in ours or ()]
        pair += [(1, other.unit(at, theirs)) for at in others_ or ()]
        for (who, _), mel in zip(pair, made(paged.run, [unit for _, unit in pair]), strict=True):
            both[who].append(mel)
    report(f"{name}, two streams", both[0] + both[1], wanted + others)
    report(f"{name}, two streams against alone", both[0], alone)
    other_ways: dict[str, dict[str, Any]] = {
        "attention by itself": {"by_head": 0},
        "a product a launch": {"barrier_units": 0},
    }
    for what, options in other_ways.items() if published().paged.barrier_channels(published().config) else ():
        other_way = published().paged_flow(weights, pages=16, dtype=dtype, buckets=(1, 2), clusters=False, **options)
        report(f"{name}, {what}", one_by_one(other_way), wanted)
        report(f"{name}, {what}, against the default", one_by_one(other_way), eager)


def passes(pages: int = 800) -> None:
    """Milliseconds of a pass by batch and by blocks of prefix, every stream with pages of its own;
    pages: at most, if there is room.
    """
    weights = published().tensors()
    rows = RUN.results
    if RUN.compile_only:
        paged = published().paged_flow(
            weights,
            pages=2,
            buckets=RUN.shard or (1, 2, 4, 8, 16, 32),
            most=32,
            launch=Launcher(True),
        )
        paged.capture()
        return
    room = state_bytes(torch.cuda.mem_get_info()[0])
    pages = min(pages, room // published().page_bytes)
    counter = CountingLauncher()
    paged = filled(weights, pages, (1, 2, 4, 8, 16, 32), launch=counter)
    seconds = paged.capture()
    memory = torch.cuda.memory_allocated() / 2**30
    print(f"captured in {seconds:.1f} s, page {paged.page_bytes / 2**20:.1f} MiB, {memory:.1f} GiB", flush=True)
    for batch in (1, 2, 4, 8, 16, 32):
        for prefix in (0, 3, 13, 33):
            if batch * (prefix + 1 + (published().fronts > 0)) + 1 > pages:
                continue
            units = spread(batch, prefix)
            paged.run(units)
            spent = timed(paged._graphs[batch, paged._way(units)].replay, 10)
            began = time.perf_counter()
            paged.run(units)
            host = 1000 * (time.perf_counter() - began)
            torch.cuda.synchronize()
            assert bool(torch.isfinite(paged._estimator.x[:batch]).all())
            before = counter.launches
            paged._launch(batch, paged._way(units))
            launches = counter.launches - before
            rows[f"{batch} {prefix + 1}"] = spent
            each = spent / batch
            print(
                f"batch {batch:3d}  {prefix + 1:3d} blocks: {spent:7.3f} ms  ({each:6.3f} a stream, host {host:.2f}, "
                f"{launches} launches)",
                flush=True,
            )
    one = RandomVoice(None, 87, 41, 7, front=6)
    first = one.units.count(one.units.grid.next_border(87, 128))
    cold = [one.unit(at, [1, 2, 3, 4, 5]) for at in range(first)]
    for name, units in (("cold", cold), ("kept", cold[-1:])):
        rows[name] = timed(partial(paged.run, units), 20)
    print(
        f"first chunk behind 87 tokens: cold {rows['cold']:.3f} ms, prompt kept {rows['kept']:.3f} ms, host included",
        flush=True,
    )


def recompute() -> None:
    """A pass that makes the last block of a sentence from nothing kept."""
    weights = published().tensors()
    rows = RUN.results
    paged = published().paged_flow(weights, pages=2, buckets=(4, 8, 16, 32), most=max(AGAIN))
    paged.capture((Way.RECOMPUTED,))
    for blocks in AGAIN:
        one = RandomVoice(None, 0, 25 * blocks, 5)
        paged.recompute(scratch_units(paged, one))
        rows[str(blocks)] = timed(paged._graphs[blocks, Way.RECOMPUTED].replay, 10)
        scratch = paged.scratch_layout.elements * 2 / 2**20
        print(
            f"recomputing {blocks:3d} blocks: {rows[str(blocks)]:.3f} ms, scratch {scratch:.2f} MiB a block", flush=True
        )
