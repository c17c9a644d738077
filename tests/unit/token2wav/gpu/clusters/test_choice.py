"""Batches that clusters cannot compute go the other way, and where they cannot run at all the log
says why. What they compute is tested on a GPU (`tests/gpu/test_clusters_are_the_kernels.py`).
"""

import logging
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

import torch

from bench.real_size import PUBLISHED_FLOW
from cosyserve.engines.cuda_kernels import Compiled, CompileError, DriverError
from services.token2wav.gpu.clusters import step as step_module
from services.token2wav.gpu.clusters.step import CAPABILITY, clustered_step, source
from services.token2wav.gpu.paged_flow.flow import LONG_PAGES, PagedFlow, Way
from services.token2wav.gpu.paged_flow.kept_numbers import AS_OPERANDS, KEPT_NUMBERS
from services.token2wav.gpu.paged_flow.networks import UNET
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.paged_flow.weights import Product
from tests.unit.token2wav.gpu.small_flow import SMALL, random_tensors


def unit(own: int, *before: int) -> Unit:
    return Unit([*before, own], torch.zeros(25, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(80))


@pytest.mark.parametrize(
    ("units", "way"),
    [
        ([unit(1)], Way.APART),
        ([unit(5, 1, 2), unit(6, 1, 3)], Way.APART),
        ([unit(5, 1), unit(6, 1, 5)], Way.SHORT),
        ([unit(at) for at in (1, 2, 3)], Way.SHORT),
        ([unit(9, *range(1, LONG_PAGES))], Way.APART),
        ([unit(9, *range(LONG_PAGES))], Way.LONG),
    ],
    ids=["one", "two streams of one prompt", "two blocks of a stream", "three", "most pages", "more pages"],
)
def test_clusters_compute_one_or_two_units_none_of_which_reads_what_another_writes(
    units: list[Unit], way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[int, Way]] = []
    flow = PagedFlow(UNET, SMALL, random_tensors(SMALL), pages=2, dtype=torch.float32, buckets=(1, 2, 4))
    monkeypatch.setattr(flow, "_launch", lambda size, way: launched.append((size, way)))
    flow.run(units)
    assert launched.pop()[1] is (Way.SHORT if way is Way.APART else way)
    monkeypatch.setattr(flow._estimator, "clustered_units", step_module.MOST_UNITS)
    flow.run(units)
    assert launched.pop()[1] is way
    flow.recompute(units[:1])
    assert launched.pop()[1] is Way.RECOMPUTED


def test_a_program_has_room_for_the_pages_that_a_batch_in_clusters_may_have() -> None:
    assert f"MOST_PAGES = {LONG_PAGES}," in source()


def no_compiler(*_: object) -> None:
    raise CompileError("no compiler")


def no_driver(*_: object) -> None:
    raise DriverError("cuModuleLoadData: no binary for this GPU")


@dataclass
class Narrow:
    """The step of a device that runs few clusters at the same time."""

    compiled: object
    levels: object
    ends: object
    chained: bool
    clusters = 3


@pytest.mark.parametrize(
    ("changed", "capability", "reason"),
    [
        ({}, None, "compute capability 9.0"),
        ({}, (10, 0), "compute capability 9.0"),
        ({"dtype": torch.float32}, CAPABILITY, "bfloat16"),
        ({"kept": KEPT_NUMBERS["int8"]}, CAPABILITY, "keys and values in bfloat16"),
        ({"config": replace(PUBLISHED_FLOW, head_width=32)}, CAPABILITY, "heads, their width"),
        ({"compile_kernels": no_compiler}, CAPABILITY, "no compiler"),
        ({"ClusteredStep": no_driver}, CAPABILITY, "no binary for this GPU"),
        ({"ClusteredStep": Narrow}, CAPABILITY, "runs 3 of its clusters"),
    ],
)
def test_where_clusters_cannot_run_the_log_says_why_and_there_is_no_step(
    changed: dict[str, Any], capability: tuple[int, int] | None, reason: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    replaced = {"compile_kernels": lambda *_: Compiled(b"")} | changed
    for name in ("compile_kernels", "ClusteredStep"):
        if name in replaced:
            monkeypatch.setattr(step_module, name, replaced[name])
    monkeypatch.setattr(step_module, "capability_of", lambda device: capability)
    given: dict[str, Any] = {"config": PUBLISHED_FLOW, "dtype": torch.bfloat16, "kept": AS_OPERANDS} | changed
    end = Product(torch.zeros(1), torch.zeros(1))
    with caplog.at_level(logging.INFO, step_module.__name__):
        step = clustered_step(given["config"], [], (end, end, end), given["dtype"], True, given["kept"])
    assert step is None
    (record,) = caplog.records
    assert reason in record.getMessage()
    failed = changed.keys() & {"compile_kernels"} or changed.get("ClusteredStep") is no_driver
    assert record.levelname == ("WARNING" if failed else "INFO")
