"""The decode step of one launch: every weight is read once, by one program, in an order that the
kernel's own indices turn into the product; what it does not support is refused with a reason.
"""

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from bench.real_size import PUBLISHED_LLM
from cosyserve.engines.cuda_kernels import CompileError, Driver, DriverError, compile_kernels
from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.engines.one_launch import SHARED_KIB, WEIGHTS_MIB
from cosyserve.errors import SettingsError
from services.llm.backends.torch_backend import TorchBackend
from services.llm.gpu import one_launch, weight_order
from services.llm.gpu.layout import PAGE
from services.llm.gpu.own_gpu import require_own_gpu
from services.llm.gpu.slots import COLUMNS
from services.llm.gpu.weight_order import WARPS, deep_rows, described, divide, eight_rows, gate_and_up
from tests.unit.llm.tiny_llm import settings

H100 = 132


@pytest.mark.parametrize("programs", [112, 114, H100, 148])
def test_every_tile_has_one_program(programs: int) -> None:
    plan = divide(PUBLISHED_LLM, programs)
    assert sorted(tile for program in plan for tile in program.heads) == list(range(144))
    assert sorted(tile for program in plan for tile in program.gated) == list(range(608))
    assert sorted(program.own for program in plan if program.own >= 0) == list(range(112))
    assert sorted(program.rank for program in plan) == list(range(programs))
    ids = [number for program in plan for number in range(program.first_id, program.first_id + program.ids)]
    assert ids == list(range(PUBLISHED_LLM.speech.rows))
    gated = [len(program.gated) for program in plan]
    assert max(gated) - min(gated) <= 1
    assert max(program.ids for program in plan) <= 16 * max(gated)
    assert {len(described(program, 0, 0)) for program in plan} == {72}


def fragments(numbers: Tensor, units: int) -> Tensor:
    """Weights of a tile of 8 rows for one warp, [8 rows, units, 16 columns], read as the kernel
    reads them: a lane has 16 bytes of a pair of units, its row and four columns of each.
    """
    pairs, rest = numbers[: units // 2 * 256], numbers[units // 2 * 256 :]
    of_pairs = pairs.reshape(-1, 8, 4, 2, 4).permute(1, 0, 3, 2, 4).reshape(8, -1, 16)
    return torch.cat([of_pairs, rest.reshape(8, -1, 16)], dim=1)


def test_the_order_of_the_weights_is_the_product() -> None:
    draws = torch.Generator().manual_seed(0)
    x, deep = torch.randn(896, generator=draws), torch.randn(4864, generator=draws)
    matrix, wide = torch.randn(16, 896, generator=draws), torch.randn(8, 4864, generator=draws)
    by_warp = x.reshape(WARPS, 7, 16)
    tiles = eight_rows(matrix).reshape(2, WARPS, 7 * 128)
    found = [sum((fragments(tile[w], 7) * by_warp[w]).sum((1, 2)) for w in range(WARPS)) for tile in tiles]
    torch.testing.assert_close(torch.cat(found), matrix @ x, rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]

    (tile,) = deep_rows(wide)
    total, at = torch.zeros(8), 0
    for chunk in range(0, 38, 8):
        units = min(8, 38 - chunk)
        for warp in range(WARPS):
            part = deep.reshape(WARPS, 38, 16)[warp, chunk : chunk + units]
            total += (fragments(tile[at : at + units * 128], units) * part).sum((1, 2))
            at += units * 128
    torch.testing.assert_close(total, wide @ deep, rtol=1e-4, atol=1e-3)

    (both,) = gate_and_up(matrix)
    chunks = (
        both[: 4 * WARPS * 256].reshape(WARPS, 4, 8, 4, 2, 4),
        both[4 * WARPS * 256 :].reshape(WARPS, 3, 8, 4, 2, 4),
    )
    terms = torch.cat(chunks, dim=1) * by_warp.reshape(WARPS, 7, 1, 4, 1, 4)
    torch.testing.assert_close(terms.sum((0, 1, 3, 5)).T.flatten(), matrix @ x, rtol=1e-4, atol=1e-4)


def test_the_kernel_has_the_numbers_of_the_host() -> None:
    source = one_launch.source()

    def constant(name: str) -> int:
        return int(re.search(rf"constexpr int {name} = (\d+);", source)[1])  # type: ignore[index]

    assert {name: constant(name) for name in ("WARPS", "PAGE", "UNIT", "FIRST_STEPS", "DEEP_CHUNK", "STAGE")} == {
        "WARPS": WARPS,
        "PAGE": PAGE,
        "UNIT": weight_order.ROWS * weight_order.STEP * 2,
        "FIRST_STEPS": weight_order.FIRST_STEPS,
        "DEEP_CHUNK": weight_order.CHUNK,
        "STAGE": one_launch.STAGE,
    }
    assert (constant("MOST_PARTS"), constant("STATE_COLUMNS")) == (one_launch.MOST_PARTS, COLUMNS)
    assert f"heads[{weight_order.MOST_HEADS}];" in source
    assert f"gated[{weight_order.MOST_GATED}];" in source
    assert ctypes.sizeof(one_launch._Arguments) == 8 * 15 + 8


def test_what_is_not_supported_is_refused_with_a_reason() -> None:
    one_launch.check(PUBLISHED_LLM, 8192, (9, 0), H100)
    narrow = replace(PUBLISHED_LLM, hidden_size=512)
    for reason, arguments in {
        "compute capability 9.0 or later, this one has 8.9": (PUBLISHED_LLM, 8192, (8, 9), H100),
        "201 KiB of shared memory for a program, this GPU of compute capability 12.0 has 99": (
            PUBLISHED_LLM,
            8192,
            (12, 0),
            170,
        ),
        "layers of the published sizes, 896 and 4864 numbers wide": (narrow, 8192, (9, 0), H100),
        "at most 31 layers, the model has 32": (replace(PUBLISHED_LLM, layers=32), 8192, (9, 0), H100),
        "at most 8192 positions a sequence": (PUBLISHED_LLM, 8256, (9, 0), H100),
        "at least 112 multiprocessors, this GPU has 66": (PUBLISHED_LLM, 8192, (9, 0), 66),
    }.items():
        with pytest.raises(Unsuitable, match=f"{reason}.*GPU_DECODE=launches"):
            one_launch.check(*arguments)


@pytest.mark.parametrize("programs", [112, H100, 148])
def test_what_is_known_without_a_gpu_is_what_it_takes(programs: int) -> None:
    plan = divide(PUBLISHED_LLM, programs)
    tiles = max(len(program.gated) for program in plan)
    shared = one_launch.STAGES * one_launch.STAGE + one_launch.shared_bytes(tiles)
    assert shared / 1024 <= SHARED_KIB
    unit, row = weight_order.ROWS * weight_order.STEP * 2, PUBLISHED_LLM.hidden_size * 4
    weights = sum(PUBLISHED_LLM.layers * program.units(PUBLISHED_LLM) * unit + program.ids * row for program in plan)
    assert weights / 2**20 == pytest.approx(WEIGHTS_MIB, abs=1)


def test_a_machine_without_a_gpu_says_that_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="gpu_decode=one_launch needs a CUDA device"):
        TorchBackend.load(settings(device="auto", gpu_decode="one_launch"))


class Attributes(Driver):
    """As the driver: MPS is in use or not, or it does not know."""

    def __init__(self, enabled: int | None) -> None:
        self.enabled = enabled

    def __call__(self, function: str, *arguments: object) -> None:
        if function == "cuDeviceGetAttribute":
            if self.enabled is None:
                raise DriverError("cuDeviceGetAttribute: invalid argument")
            arguments[0]._obj.value = self.enabled  # type: ignore[attr-defined]


def test_a_gpu_that_is_shared_by_mps_is_refused(tmp_path: Path) -> None:
    pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    for enabled in (0, None):
        require_own_gpu(Attributes(enabled), 0, pipes)
    with pytest.raises(Unsuitable, match="shares it by MPS"):
        require_own_gpu(Attributes(1), 0, pipes)
    (tmp_path / "control").touch()
    with pytest.raises(Unsuitable, match=f"listens in {tmp_path}"):
        require_own_gpu(Attributes(None), 0, pipes)


def test_the_source_compiles_and_spills_nothing() -> None:
    """With NVRTC, which comes with torch for CUDA."""
    try:
        compiled = compile_kernels(one_launch.source(), (9, 0), one_launch.definitions(PUBLISHED_LLM, 5))
    except CompileError as error:
        if "need NVRTC" not in str(error):
            raise
        pytest.skip(str(error))
    assert "one_launch" in compiled.log
    assert " 0 bytes spill stores" in compiled.log
    assert "warning" not in compiled.log
