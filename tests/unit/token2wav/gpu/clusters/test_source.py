"""The kernel's source: its arguments are those of the launch, and it compiles for Hopper, which can
be checked without a GPU where NVRTC is installed.
"""

import re

import pytest

from cosyserve.engines.cuda_kernels import CompileError, compile_kernels
from services.token2wav.gpu.clusters import step as step_module
from services.token2wav.gpu.clusters.step import CAPABILITY, SHARED_BYTES, source


def test_a_launch_gives_the_arguments_that_the_source_declares() -> None:
    declared = re.search(r"struct Arguments \{(.*?)\n\};", source(), re.DOTALL)
    assert declared
    lines = [line.split("//")[0].strip() for line in declared[1].splitlines()]
    names = [name for line in lines for name in re.findall(r"[*\s,](\w+)(?=[,;])", line)]
    assert names == [name for name, *_ in step_module._Arguments._fields_]


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
