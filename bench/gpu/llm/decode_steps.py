"""The graphs of a decode step and of a chunk of prompts, by themselves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from bench.generations.random_weights import llm_tensors
from bench.gpu.timing import timed
from bench.real_size import PUBLISHED_LLM
from services.llm.engine.model import SpeechTokenModel
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.layout import Stretch
from services.llm.gpu.packing import PackedModel, pack
from services.llm.gpu.prefill import PrefillStep
from services.llm.gpu.slots import Column
from services.llm.gpu.tuning import BUCKETS
from services.llm.settings import LlmSettings

SLOTS, POSITIONS = 128, 2048
SERVED_POSITIONS = LlmSettings.max_positions
"""What the length of a page table follows from, which is compiled into the kernels: those of a
service with its defaults are the ones that are measured here.
"""
LENGTHS = (300, 900)
"""Positions that each row has behind it."""
PAGES = list(range(1, 17))
CHUNKS = ((0, 96), (0, 256), (768, 256))
"""First position and count."""


def published_model() -> PackedModel:
    """Random weights of the published sizes but for the text vocabulary, in bfloat16 on the GPU."""
    device, config = torch.device("cuda"), replace(PUBLISHED_LLM, text_vocabulary=1000)
    return pack(SpeechTokenModel.build(config, llm_tensors(config, device), device), torch.bfloat16, SERVED_POSITIONS)


def filled(model: PackedModel, length: int) -> Memory:
    """Every slot holds `length` positions of random keys and values."""
    pages = -(-POSITIONS // 64)
    memory = Memory.reserve(model, pages=SLOTS * pages // 2, slots=SLOTS, positions=SERVED_POSITIONS)
    memory.cache.normal_()
    half = pages // 2
    for slot in range(1, SLOTS + 1):
        memory.pages[slot, :half] = torch.arange(half, dtype=torch.int32) + 1 + (slot - 1) * half
    columns = {
        Column.LENGTH: length, Column.ACTIVE: 1, Column.LONGEST: 1 << 20, Column.CAPACITY: 1 << 20,
        Column.FILL_AT: -1, Column.FLAGS: 6, Column.SHORTEST: 1 << 20,
    }  # fmt: skip
    for column, value in columns.items():
        memory.state[1:, column] = value
    memory.state[1:, Column.SEED_LOW] = torch.arange(SLOTS, dtype=torch.int32)
    return memory


def cache_bytes(model: PackedModel, rows: int, positions: int) -> int:
    """Bytes of keys and values that a step reads."""
    return 2 * model.config.layers * model.config.kv_width * positions * rows * model.table.element_size()


def captured(model: PackedModel, batch: int, length: int) -> tuple[DecodeStep, torch.cuda.CUDAGraph]:
    memory = filled(model, length)
    step = DecodeStep(model, memory, batch)
    step.rows.copy_(torch.arange(1, batch + 1, dtype=torch.int32))
    graph = graph_of(step.launch)
    memory.state[1:, Column.LENGTH] = length
    return step, graph


def graph_of(body: Callable[[], None]) -> torch.cuda.CUDAGraph:
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    return 1000 * timed(graph.replay, 20, 1)


def steps(bandwidth: float, keep: Callable[[Any], None]) -> dict[str, Any]:
    """Microseconds of a step and of a chunk, with their floors. bandwidth: bytes a second. keep: is
    called with what is known after each.
    """
    model = published_model()
    print(f"a step reads {model.step_bytes / 1e6:.1f} MB of weights and does {model.step_flops / 1e9:.3f} GFLOP a row")
    results: dict[str, Any] = {"weight_bytes": model.step_bytes, "steps": [], "chunks": []}
    for length in LENGTHS:
        for batch in BUCKETS:
            taken = microseconds(captured(model, batch, length)[1])
            floor = 1e6 * (model.step_bytes + cache_bytes(model, batch, length)) / bandwidth
            results["steps"].append({"length": length, "rows": batch, "us": taken, "floor_us": floor})
            keep(results)
            print(
                f"step of {batch:3} rows behind {length} positions: {taken:7.1f} us, floor {floor:5.1f} us "
                f"({floor / taken:.0%})",
                flush=True,
            )
    prefill = PrefillStep(model, filled(model, 300))
    graph = graph_of(prefill.launch)
    for first, count in CHUNKS:
        prefill.load([Stretch(1, first, [5] * count, PAGES)])
        taken = microseconds(graph)
        results["chunks"].append({"first": first, "count": count, "us": taken})
        keep(results)
        print(f"chunk of {count} positions from {first}: {taken:.0f} us", flush=True)
    return results
