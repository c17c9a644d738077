"""Every kernel of a pass of the flow, and of windows of each vocoder network, compiles for Hopper
without spilling registers; this can be checked without a GPU.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

from services.token2wav.gpu.paged_flow.flow import COMPILING_STEPS

ROOT = Path(__file__).parents[4]
SHARED_BYTES = 227 << 10
"""Of a program at most, on Hopper."""
KERNELS = {
    "attend_by_head", "causal_convolution", "embedded", "euler_step", "feed_forward", "joined_parts", "looking_ahead",
    "norm_mish",
    "norm_scaled", "normed_linear", "onto_residual", "paged_attention", "prepare", "queries_keys_values",
    "relative_attention",
    "rotated_queries",
}  # fmt: skip
DIT_KERNELS = {
    "causal_convolution", "embedded", "gated_onto_stream", "joined_inputs", "joined_parts", "looking_ahead",
    "modulated_euler_step", "modulated_gelu", "modulated_queries_keys_values", "paged_attention",
    "position_convolution", "prepare",
}  # fmt: skip
STEP_DIT_KERNELS = {
    "causal_convolution", "convolved", "embedded", "gated_onto_stream", "joined_parts", "looking_ahead",
    "modulated_euler_step", "modulated_gelu", "modulated_queries_keys_values", "norm_scaled", "normed_linear",
    "normed_rows", "onto_residual", "paged_attention", "prepare", "queries_keys_values", "relative_attention",
    "rotated_queries",
}  # fmt: skip
BATCHES = ("1", "2", "4", "8", "16", "32")


def printed(*arguments: str, cache: Path | None = None) -> Any:
    """What `hopper` prints. It runs in a process of its own: here kernels are interpreted."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"} | ({"TRITON_CACHE_DIR": str(cache)} if cache else {})
    command = [sys.executable, "-m", "tests.unit.token2wav.gpu.hopper", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compiled(cache: Path, *arguments: str) -> list[dict[str, Any]]:
    """Resources of the kernels that the arguments name; each fits into registers and memory."""
    found: list[dict[str, Any]] = printed(*arguments, cache=cache)
    assert [each for each in found if each["stack"] > STACK.get(each["kernel"], 0) or each["local"]] == []
    assert max(kernel["shared"] for kernel in found) <= SHARED_BYTES
    return found


@pytest.mark.parametrize("kept", ["int8", "float8", "operands"])
def test_kernels_of_the_transformer_fit_into_registers(tmp_path: Path, kept: str) -> None:
    found = compiled(tmp_path, "dit", kept, *BATCHES)
    assert {kernel["kernel"] for kernel in found} == DIT_KERNELS
    assert {kernel["constants"]["SPLITS"] for kernel in found if kernel["kernel"] == "paged_attention"} == {1, 4}


@pytest.mark.parametrize("kept", ["int8", "float8", "operands"])
def test_kernels_of_the_transformer_behind_a_conformer_fit_into_registers(tmp_path: Path, kept: str) -> None:
    found = compiled(tmp_path, "conformer-dit", kept, *BATCHES)
    assert {kernel["kernel"] for kernel in found} == STEP_DIT_KERNELS


@pytest.mark.parametrize("units", ["1", "4"])
@pytest.mark.parametrize("name", ["conformer-unet", "dit", "conformer-dit"])
def test_the_steps_that_compile_have_all_kernels(name: str, units: str) -> None:
    """Else one would be compiled while a graph is recorded."""
    assert printed("steps", name, units, *map(str, COMPILING_STEPS)) == []


def test_the_first_step_lacks_a_kernel_of_the_last() -> None:
    assert printed("steps", "conformer-unet", "1", "0") == ["euler_step"]


WINDOW_KERNELS = {
    "analysed", "from_ring", "overlapped", "pitch", "pitch_layer", "short_frames", "windowed_convolution"
}  # fmt: skip
STACK = {"excitation": 32, "held_waves": 48, "pitch_layer": 16, "short_frames": 32}
"""Bytes at most, of others none: CUDA's sine reduces large angles there, and a layer in float64
keeps two numbers there.
"""
SOURCE_KERNELS = {"hift": {"excitation", "phases"}, "causal-hift": {"held_excitation", "held_waves"}}


def test_the_source_of_a_window_fits_into_registers(tmp_path: Path) -> None:
    wanted = SOURCE_KERNELS["causal-hift"]
    found = compiled(tmp_path, "causal-hift", "10", "1", *wanted)
    assert {kernel["kernel"] for kernel in found} == wanted


@pytest.mark.parametrize("windows", ["1", "32"])
@pytest.mark.parametrize("network", SOURCE_KERNELS)
def test_kernels_of_windows_fit_into_registers(tmp_path: Path, network: str, windows: str) -> None:
    found = compiled(tmp_path, network, "50", windows)
    assert {kernel["kernel"] for kernel in found} == WINDOW_KERNELS | SOURCE_KERNELS[network]


@pytest.mark.parametrize("kept", ["int8", "float8", "operands"])
def test_kernels_of_all_batches_fit_into_registers(tmp_path: Path, kept: str) -> None:
    found = compiled(tmp_path, "conformer-unet", kept, *BATCHES)
    assert {kernel["kernel"] for kernel in found} == KERNELS
    forms = {
        (kernel["kernel"], kernel["constants"].get("SPLITS"), kernel["constants"].get("HEADS")) for kernel in found
    }
    assert {
        ("feed_forward", None, 0),
        ("feed_forward", None, 8),
        ("paged_attention", 1, 8),
        ("paged_attention", 4, 8),
    } <= forms
