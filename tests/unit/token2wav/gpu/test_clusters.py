"""The step in thread-block clusters: its weights lie where its programs read them, batches that it
cannot compute go the other way, and where it cannot run the log says why. What it computes is
tested on a GPU (`tests/gpu/test_clusters_are_the_kernels.py`).
"""

import logging
import re
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

import torch
from torch import Tensor

from bench.real_size import PUBLISHED_FLOW
from cosyserve.engines.cuda_kernels import CompileError, compile_kernels
from services.token2wav.gpu.clusters import step as step_module
from services.token2wav.gpu.clusters.packing import chunk_sizes, packed
from services.token2wav.gpu.clusters.step import CAPABILITY, SHARED_BYTES, clustered_step, source
from services.token2wav.gpu.paged_flow.flow import LONG_PAGES, PagedFlow, Way
from services.token2wav.gpu.paged_flow.kept_numbers import KEPT_NUMBERS
from services.token2wav.gpu.paged_flow.networks import UNET
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.paged_flow.weights import Level, Product
from tests.unit.token2wav.gpu.small_flow import SMALL, random_tensors

SHALLOW = replace(PUBLISHED_FLOW, encoder_layers=1, encoder_feed_forward=64, middle=1)


def read(chunk: Tensor, columns: int) -> Tensor:
    """[channels, columns] as a program's matrix units read a chunk: in blocks of 8 x 8, whose rows
    a thread gets as pairs of channels.
    """
    blocks = chunk.reshape(columns // 8, -1, 8, 8)
    rows = blocks.permute(1, 2, 0, 3).reshape(-1, columns)
    of_channel = [16 * (channel // 16) + 8 * (channel % 2) + channel % 16 // 2 for channel in range(len(rows))]
    return rows[of_channel]


class Program:
    """The weights of one head, in the order in which its program takes them."""

    def __init__(self, weights: Tensor, sizes: list[int]) -> None:
        self._chunks = list(torch.split(weights, [size // 2 for size in sizes[:-1]]))

    def product(self, count: int, columns: int) -> Tensor:
        """[channels, count * columns]: the next `count` chunks of so many columns."""
        taken, self._chunks = self._chunks[:count], self._chunks[count:]
        return torch.cat([read(chunk, columns) for chunk in taken], dim=1)

    def convolution(self, taps: int, slices: int) -> Tensor:
        """[channels, taps, 32 * slices]."""
        return self.product(taps * slices, 32).unflatten(1, (taps, 32 * slices))

    @property
    def left(self) -> int:
        """Chunks that are left."""
        return len(self._chunks)


def slices(weight: Tensor, head: int) -> Tensor:
    """The input channels [256, taps, 32 or 64] of a head's program."""
    channels = weight.shape[-1]
    if channels == 320:
        return torch.nn.functional.pad(weight[..., 40 * head : 40 * head + 40], (0, 24))
    return torch.cat([weight[..., at + 32 * head : at + 32 * head + 32] for at in range(0, channels, 256)], dim=-1)


@pytest.fixture(scope="module")
def estimator() -> Any:
    return PagedFlow(
        UNET, SHALLOW, random_tensors(SHALLOW), pages=1, dtype=torch.bfloat16, buckets=(1, 2, 8)
    )._estimator


def test_programs_take_the_estimators_weights_in_the_order_of_the_step(estimator: Any) -> None:
    levels: list[Level] = estimator._levels
    ends: tuple[Product, ...] = (estimator._down_end, estimator._up_end, estimator._final)
    weights = packed(levels, *ends)
    sizes = chunk_sizes(len(levels))
    assert weights.shape == (8, sum(sizes) // 2)
    # Attention leaves channels c and c + 8 next to each other.
    beside = torch.tensor([16 * block + half * 8 + c for block in range(4) for c in range(8) for half in (0, 1)])
    for head in (0, 5):
        program = Program(weights[head], sizes)
        for at, level in enumerate(levels):
            parts = 2 if at in (0, len(levels) - 1) else 1
            assert program.convolution(3, parts).equal(slices(level.first.weight, head))
            assert program.convolution(1, parts).equal(slices(level.shortcut.weight[:, None], head))
            assert program.convolution(3, 1).equal(slices(level.second.weight, head))
            for layer in level.transformers:
                mine, hidden = slice(64 * head, 64 * head + 64), slice(128 * head, 128 * head + 128)
                heads = layer.qkv.weight.reshape(3, 512, 256)[:, mine].reshape(192, 256)
                assert program.product(8, 32).equal(heads)
                assert program.product(2, 32).equal(layer.out.weight[:, mine][:, beside])
                assert program.product(4, 64).equal(layer.widen.weight[hidden])
                assert program.product(4, 32).equal(layer.narrow.weight[:, hidden])
            of_level = ends[:1] if at == 0 else ends[1:] if at == len(levels) - 1 else ()
            for end in of_level:
                assert program.convolution(3, 1).equal(slices(end.weight, head))
        assert program.left == 0


def test_a_launch_gives_the_arguments_that_the_source_declares() -> None:
    declared = re.search(r"struct Arguments \{(.*?)\n\};", source(), re.DOTALL)
    assert declared
    lines = [line.split("//")[0].strip() for line in declared[1].splitlines()]
    names = [name for line in lines for name in re.findall(r"[*\s,](\w+)(?=[,;])", line)]
    assert names == [name for name, *_ in step_module._Arguments._fields_]


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


@pytest.mark.parametrize(
    ("config", "dtype", "kept", "capability", "reason"),
    [
        (SHALLOW, torch.bfloat16, "operands", None, "compute capability 9.0"),
        (SHALLOW, torch.bfloat16, "operands", (10, 0), "compute capability 9.0"),
        (SHALLOW, torch.float32, "operands", CAPABILITY, "bfloat16"),
        (SHALLOW, torch.bfloat16, "int8", CAPABILITY, "keys and values"),
        (replace(SHALLOW, head_width=32), torch.bfloat16, "operands", CAPABILITY, "heads, their width"),
        (SHALLOW, torch.bfloat16, "operands", CAPABILITY, "no compiler"),
    ],
)
def test_where_clusters_cannot_run_the_log_says_why_and_there_is_no_step(
    config: Any, dtype: torch.dtype, kept: str, capability: tuple[int, int] | None, reason: str,
    estimator: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def no_compiler(*_: object) -> None:
        raise CompileError("no compiler")

    monkeypatch.setattr(step_module, "compile_kernels", no_compiler)
    monkeypatch.setattr(step_module, "capability_of", lambda device: capability)
    ends = (estimator._down_end, estimator._up_end, estimator._final)
    with caplog.at_level(logging.INFO, step_module.__name__):
        assert clustered_step(config, estimator._levels, ends, dtype, True, KEPT_NUMBERS[kept]) is None
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert record.levelname == ("WARNING" if reason == "no compiler" else "INFO")


def test_the_source_compiles_for_hopper_and_fits_into_registers() -> None:
    try:
        said = compile_kernels(source(), CAPABILITY).log
    except CompileError as error:
        if "need NVRTC" not in str(error):
            raise
        pytest.skip(str(error))
    assert "warning" not in said
    assert int(re.search(r"Used (\d+) registers", said)[1]) <= 128  # type: ignore[index]
    assert int(re.search(r"(\d+) bytes spill loads", said)[1]) <= 64  # type: ignore[index]
    assert SHARED_BYTES <= 227 << 10
