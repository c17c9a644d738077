"""For all tests on a GPU: kernels are compiled side by side before the first test that launches
some, and kept for all processes.
"""

import contextlib
import os
from collections.abc import Iterator

import pytest
import torch

from bench.gpu import kernels as kernels_of_this_gpu
from tests.gpu.compiling import CACHE, compile_all


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """COSYSERVE_CACHE_DIR as it is set, else one for this session; tests that launch kernels by
    themselves keep them there too.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get(CACHE):
            patch.setenv(CACHE, str(tmp_path_factory.mktemp("cache")))
        if torch.cuda.is_available():
            kernels_of_this_gpu.keep()
        yield


@pytest.fixture(scope="session")
def kernels(caches: None, request: pytest.FixtureRequest) -> None:
    """Everything that the tests launch is compiled; what could not be is compiled, or fails, in its
    test.
    """
    if not torch.cuda.is_available():
        return
    capturing = request.config.pluginmanager.getplugin("capturemanager")
    with capturing.global_and_fixture_disabled() if capturing else contextlib.nullcontext():
        print()
        compile_all(lambda line: print(line, flush=True))
