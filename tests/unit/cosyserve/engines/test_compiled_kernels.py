"""What the log says of the kernels of a start."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from cosyserve.engines.kernel_cache import KernelCount, counted_kernels

knobs = pytest.importorskip("triton").knobs


def told(count: Any, name: str, *, cache_hit: bool, microseconds: int = 0) -> None:
    """As Triton's compiler calls its listener."""
    times = SimpleNamespace(total=microseconds)
    count(src=None, metadata={"name": name}, metadata_group={}, times=times, cache_hit=cache_hit)


def test_the_count_is_logged_also_of_a_start_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = knobs.compilation.listener

    def start() -> None:
        with counted_kernels("the fused kernels"):
            listener = knobs.compilation.listener
            told(listener, "gated", cache_hit=True)
            for _ in range(2):
                told(listener, "gated", cache_hit=False, microseconds=400_000)
            told(listener, "out", cache_hit=False, microseconds=1_700_000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        start()
    assert knobs.compilation.listener is before
    assert caplog.messages == ["start: the fused kernels: 1 from the cache, 3 compiled in 2.5 s (gated 2, out 1)"]


def test_a_start_that_compiles_nothing_says_so() -> None:
    count = KernelCount()
    told(count, "out", cache_hit=True)
    assert str(count) == "1 from the cache, none compiled"
    for number in range(9):
        told(count, f"kernel{number}", cache_hit=False)
    assert str(count).endswith("kernel7 1, ...)")


def test_the_listener_is_one_that_triton_calls() -> None:
    # The names of the arguments are Triton's; a release that has others would end a start.
    from inspect import signature

    asked = set(signature(knobs.CompilationListener.__call__).parameters) - {"self"}
    assert asked == set(signature(KernelCount.__call__).parameters) - {"self"}
