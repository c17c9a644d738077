"""Which block sizes suit each product of the speech-token model, by measurement: `python -m
bench.gpu.llm.tuning OUT.json`.
"""

import functools
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from services.llm.gpu.state_table import Column

from bench.gpu.timing import timed
from bench.real_size import PUBLISHED_LLM, llm_tensors, smaller
from services.llm.engine.model import SpeechTokenModel
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.packing import PackedModel, pack
from services.llm.gpu.tuning import Blocks, Tuning, tuning

KINDS = ("heads", "out", "gated", "down", "score")
SLOTS, POSITIONS = 128, 2048


def candidates(batch: int, kind: str) -> list[Blocks]:
    """Block sizes that may suit one product with this number of rows."""
    choices = []
    for rows in [1] if batch == 1 else []:
        grid = {
            "heads": ([2, 4, 8], [1024], [2, 4, 8], [1]),
            "out": ([2, 4, 8], [1024], [2, 4, 8], [1]),
            "gated": ([1, 2, 4, 8], [256, 512, 1024], [1, 2, 4, 8], [1]),
            "down": ([1, 2, 4], [1024, 2048, 4096], [4, 8, 16], [1]),
            "score": ([2, 4, 8], [512, 1024], [2, 4, 8], [1]),
        }[kind]
        for bn, bk, warps, split in itertools.product(*grid):
            if kind == "heads" and bn < 2:
                continue
            of_thread = rows * bn * bk * (2 if kind == "gated" else 1) / (32 * warps)
            if 8 <= of_thread <= 128:
                choices.append(Blocks(rows, bn, bk, warps, 3, split))
    if batch == 1:
        return choices
    padded = max(16, min(batch, 128))
    for bm in {16: [16], 32: [32], 64: [64], 128: [64, 128]}[padded]:
        few = bm <= 32
        grid2 = {
            "heads": ([16, 32], [64, 128], [2, 4] if few else [4], [3, 6], [1]),
            "out": ([16, 32], [128], [2, 4] if few else [4], [4, 6], [1, 2, 4]),
            "gated": ([16, 32] if few else [32, 64], [64, 128], [1, 2, 4] if few else [4, 8], [3, 5], [1]),
            "down": ([16, 32, 64], [128, 256], [2, 4] if few else [4], [3, 4], [2, 4, 8]),
            "score": ([32, 64, 128], [32, 64], [4], [3], [1]),
        }[kind]
        for bn, bk, warps, stages, split in itertools.product(*grid2):
            size = 4 if kind == "score" else 2
            shared = stages * bk * size * (bm + bn * (2 if kind == "gated" else 1))
            if shared < 220_000:
                choices.append(Blocks(bm, bn, bk, warps, stages, split))
    return choices


def model_on(device: torch.device, layers: int, dtype: torch.dtype) -> PackedModel:
    config = smaller(PUBLISHED_LLM, layers=layers, text_vocabulary=1000)
    return pack(SpeechTokenModel.build(config, llm_tensors(config, device), device), dtype, POSITIONS)


def filled(model: PackedModel, length: int) -> Memory:
    """Every slot holds `length` positions of random keys and values."""
    pages = -(-POSITIONS // 64)
    memory = Memory.reserve(model, pages=SLOTS * pages // 2, slots=SLOTS, positions=POSITIONS)
    memory.cache.normal_()
    half = pages // 2
    for slot in range(1, SLOTS + 1):
        memory.pages[slot, :half] = torch.arange(half, dtype=torch.int32) + 1 + (slot - 1) * half
    state = memory.state
    state[1:, Column.LENGTH], state[1:, Column.ACTIVE], state[1:, Column.LONGEST], state[1:, Column.CAPACITY] = (
        length,
        1,
        1 << 20,
        1 << 20,
    )
    state[1:, Column.FILL_AT], state[1:, Column.FLAGS], state[1:, Column.SHORTEST] = -1, 6, 1 << 20
    state[1:, Column.SEED_LOW] = torch.arange(SLOTS, dtype=torch.int32)
    return memory


def attentions() -> list[tuple[int, int, int]]:
    """Splits, warps, stages."""
    return list(itertools.product([1, 2, 4, 8, 16], [2, 4], [2, 3]))


def one_call(step: DecodeStep, kind: str, blocks: Blocks | None, index: int) -> None:
    """One kernel of one block."""
    weights = step._model.layers[index]
    if kind == "heads":
        step.project(index)
    elif kind == "out" and blocks:
        step.add(blocks, step._attended, weights.out, 0)
    elif kind == "gated":
        step.gate(index)
    elif kind == "down" and blocks:
        step.add(blocks, step._gated, weights.down, 1)
    elif kind == "attend":
        step.attend(index)
    else:
        step.score()


def calls(step: DecodeStep, kind: str, blocks: Blocks | None, layers: range) -> None:
    for index in layers:
        one_call(step, kind, blocks, index)


def with_one(base: Tuning, kind: str, blocks: Blocks) -> Tuning:
    """The tuning with other blocks for one product."""
    changed: dict[str, Any] = {kind: blocks}
    return replace(base, **changed)


def with_blocks(model: PackedModel, memory: Memory, batch: int, kind: str, blocks: Blocks) -> DecodeStep:
    base = replace(tuning(batch), pdl=0)
    step = DecodeStep(model, memory, batch, base if kind == "attend" else with_one(base, kind, blocks))
    step.rows.copy_(torch.arange(1, batch + 1, dtype=torch.int32))
    step._rounded.normal_()
    step._attended.normal_()
    step._gated.normal_()
    return step


def compile_all(jobs: list[tuple[int, str, Blocks]], attends: list[tuple[int, int, int]]) -> list[str]:
    device = torch.device("cuda")
    model = model_on(device, 1, torch.bfloat16)
    memory = filled(model, 300)
    failed = []
    for batch, kind, blocks in jobs:
        try:
            one_call(with_blocks(model, memory, batch, kind, blocks), kind, blocks, 0)
            torch.cuda.synchronize()
        except Exception as error:
            failed.append(f"{batch} {kind} {blocks}: {type(error).__name__} {str(error)[:100]}")
    for splits, warps, stages in attends:
        step = DecodeStep(
            model, memory, 1, replace(tuning(1), pdl=0, splits=splits, attend_warps=warps, attend_stages=stages)
        )
        step.enter()
        step.attend(0)
    torch.cuda.synchronize()
    return failed


def tune_attention(model: PackedModel, batches: tuple[int, ...]) -> dict[int, tuple[int, int, int]]:
    """Over both a short and a long past."""
    best = {}
    memories = {length: filled(model, length) for length in (300, 900)}
    for batch in batches:
        tried = []
        for splits, warps, stages in attentions():
            line = []
            for length, memory in memories.items():
                blocks = replace(tuning(batch), pdl=0, splits=splits, attend_warps=warps, attend_stages=stages)
                step = DecodeStep(model, memory, batch, blocks)
                step.rows.copy_(torch.arange(1, batch + 1, dtype=torch.int32))
                step.enter()
                graph = graph_of(functools.partial(calls, step, "attend", None, range(len(model.layers))))
                line.append(microseconds(graph) / len(model.layers))
                memory.state[1:, Column.LENGTH] = length
            tried.append((sum(line), line, (splits, warps, stages)))
        tried.sort()
        for _, line, choice in tried[:4]:
            print(
                f"{batch:4} attend {line[0]:6.2f} us at 300, {line[1]:6.2f} at 900: splits, warps, stages {choice}",
                flush=True,
            )
        print(f"{batch:4} attend worst {tried[-1][1]} {tried[-1][2]}")
        best[batch] = tried[0][2]
    return best


def graph_of(body: Callable[[], None]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def microseconds(graph: torch.cuda.CUDAGraph, repeats: int = 20) -> float:
    return 1000 * timed(graph.replay, repeats, 1)


def tune(out: Path, batches: tuple[int, ...]) -> dict[int, Tuning]:
    jobs = [(batch, kind, blocks) for batch in batches for kind in KINDS for blocks in candidates(batch, kind)]
    started = time.perf_counter()
    workers = 14
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for failures in pool.starmap(
            compile_all, [(jobs[at::workers], attentions()[at::workers]) for at in range(workers)], chunksize=1
        ):
            for failure in failures:
                print("failed:", failure)
    print(f"{len(jobs)} variants compiled in {time.perf_counter() - started:.0f} s", flush=True)
    model = model_on(torch.device("cuda"), PUBLISHED_LLM.layers, torch.bfloat16)
    memory = filled(model, 300)
    fastest: list[dict[str, object]] = []
    best: dict[int, Tuning] = {}
    for batch in batches:
        chosen = tuning(batch)
        for kind in KINDS:
            tried = []
            for blocks in candidates(batch, kind):
                try:
                    step = with_blocks(model, memory, batch, kind, blocks)
                    layers = range(1 if kind == "score" else len(model.layers))
                    graph = graph_of(functools.partial(calls, step, kind, blocks, layers))
                    tried.append((microseconds(graph) / len(layers), blocks))
                except Exception as error:
                    print("failed:", batch, kind, blocks, type(error).__name__, str(error)[:80])
                    torch.cuda.synchronize()
            tried.sort(key=lambda item: item[0])
            for taken, blocks in tried[:4]:
                print(f"{batch:4} {kind:6} {taken:7.2f} us  {blocks}")
            print(f"{batch:4} {kind:6} worst {tried[-1][0]:7.2f} us, {len(tried)} variants", flush=True)
            fastest += [{"batch": batch, "kind": kind, "us": taken} | asdict(blocks) for taken, blocks in tried[:5]]
            chosen = with_one(chosen, kind, tried[0][1])
            out.write_text(json.dumps(fastest))
        best[batch] = chosen
    for batch, (splits, warps, stages) in tune_attention(model, batches).items():
        best[batch] = replace(best[batch], splits=splits, attend_warps=warps, attend_stages=stages)
        fastest.append(
            {
                "batch": batch,
                "kind": "attend",
                "us": 0.0,
                "splits": splits,
                "attend_warps": warps,
                "attend_stages": stages,
            }
        )
        out.write_text(json.dumps(fastest))
    for batch, chosen in best.items():
        print(batch, chosen)
    return best


if __name__ == "__main__":
    tune(
        Path(sys.argv[1]),
        tuple(int(word) for word in sys.argv[2].split(",")) if len(sys.argv) > 2 else (1, 8, 32, 64, 128),
    )
