"""Every kernel of a pass of the flow compiles for Hopper without spilling registers; this can be
checked without a GPU.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

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


def test_kernels_of_all_batches_fit_into_registers(tmp_path: Path) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.unit.token2wav.gpu.hopper", "1", "2", "4", "8", "16", "32"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
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
    assert [kernel for kernel in found if kernel["stack"] or kernel["local"]] == []
    assert max(kernel["shared"] for kernel in found) <= SHARED_BYTES
