"""The graphs of a decode step and of a chunk of prompts by themselves, and what their time is spent
on.
"""

from collections.abc import Callable
from typing import Any

import torch
from services.llm.gpu.state_table import Column

from bench.gpu.llm.tuning import filled, graph_of, microseconds, model_on
from bench.real_size import PUBLISHED_LLM
from services.llm.gpu.decode import DecodeStep
from services.llm.gpu.layout import Stretch
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.prefill import PrefillStep
from services.llm.gpu.tuning import BUCKETS

LENGTHS = (300, 900)
"""Positions that each row has behind it."""
PAGES = list(range(1, 17))
CHUNKS = ((0, 96), (0, 256), (768, 256))
"""First position and count."""


def captured(model: PackedModel, batch: int, length: int) -> tuple[DecodeStep, torch.cuda.CUDAGraph]:
    memory = filled(model, length)
    step = DecodeStep(model, memory, batch)
    step.rows.copy_(torch.arange(1, batch + 1, dtype=torch.int32))
    graph = graph_of(step.launch)
    memory.state[1:, Column.LENGTH] = length
    return step, graph


def cache_read(model: PackedModel, batch: int, length: int) -> int:
    """Bytes of keys and values that a step reads."""
    return 2 * model.config.layers * model.config.kv_width * length * batch * model.table.element_size()


def steps(bandwidth: float, keep: Callable[[Any], None]) -> dict[str, Any]:
    """Microseconds of a step and of a chunk, with their floors. bandwidth: bytes a second. keep: is
    called with what is known after each.
    """
    model = model_on(torch.device("cuda"), PUBLISHED_LLM.layers, torch.bfloat16)
    print(f"a step reads {model.step_bytes / 1e6:.1f} MB of weights and does {model.step_flops / 1e9:.3f} GFLOP a row")
    results: dict[str, Any] = {"weight_bytes": model.step_bytes, "steps": [], "chunks": []}
    for length in LENGTHS:
        for batch in BUCKETS:
            taken = microseconds(captured(model, batch, length)[1])
            floor = 1e6 * (model.step_bytes + cache_read(model, batch, length)) / bandwidth
            results["steps"].append({"length": length, "rows": batch, "us": taken, "floor_us": floor})
            keep(results)
            print(
                f"step of {batch:3} rows behind {length} positions: {taken:7.1f} us, floor {floor:5.1f} us "
                f"({floor / taken:.0%})",
                flush=True,
            )
    memory = filled(model, 300)
    prefill = PrefillStep(model, memory)
    graph = graph_of(prefill.launch)
    for first, count in CHUNKS:
        prefill.load([Stretch(1, first, [5] * count, PAGES)])
        taken = microseconds(graph)
        results["chunks"].append({"first": first, "count": count, "us": taken})
        keep(results)
        print(f"chunk of {count} positions from {first}: {taken:.0f} us", flush=True)
    return results


def kernels(bandwidth: float) -> list[dict[str, Any]]:
    """Each kernel's share of a step, with the floor of those that read weights."""
    model = model_on(torch.device("cuda"), PUBLISHED_LLM.layers, torch.bfloat16)
    layer = model.layers[0]
    size = {name: getattr(layer, name).numel() * 2 for name in ("qkv", "out", "gate_up", "down")}
    read = {
        "project_heads": size["qkv"], "add_product": (size["out"] + size["down"]) // 2,
        "gated_product": size["gate_up"],
        "score": model.head.numel() * 4,
    }  # fmt: skip
    rows = []
    for batch in (1, 8, 64, 128):
        _, graph = captured(model, batch, LENGTHS[0])
        graph.replay()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(5):
                graph.replay()
            torch.cuda.synchronize()
        for event in sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total):
            if event.self_device_time_total:
                each, count = event.self_device_time_total / event.count, event.count // 5
                moved = read.get(
                    event.key,
                    cache_read(model, batch, LENGTHS[0]) // model.config.layers if event.key == "attend_row" else 0,
                )
                floor = 1e6 * moved / bandwidth
                rows.append({"rows": batch, "kernel": event.key, "count": count, "us": each, "floor_us": floor})
                print(
                    f"{batch:4} rows  {event.key[:40]:16} {count:3} x {each:6.2f} us = {count * each:6.1f} us, floor "
                    f"{floor:5.2f} us each",
                    flush=True,
                )
    return rows
