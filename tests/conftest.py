"""For all tests: one thread for each engine, here and in child processes, because the layers are
too small to share. No caller is refused because several tests share the cores of the machine.
Without a GPU, Triton's kernels are interpreted, which has to be set before it is imported. The
tables of the bundled model, of which two seconds of computing make dictionaries, are read once for
all frontends in a process, and so are the versions of libraries, which each service states. The
tests of `slow.txt` are marked `slow`.
"""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cosyserve.rpc import service_info
from services.frontend.tokenizers.phonemes import tokenizer as phoneme_tokenizer
from tests.stacks.up_process import DEMO

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT", "off")
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


SLOW = frozenset((Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines())
"""Node ids of tests that `make test` leaves to `make test-all`: all cases of a function, or one."""


@pytest.fixture(scope="session", autouse=True)
def _read_once() -> Iterator[None]:
    def once(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        kept = cache(read)
        return lambda path: kept(path) if path.resolve().is_relative_to(DEMO) else read(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_info, "library_versions", cache(service_info.library_versions))
        for name in ("read_lexicon", "read_letters"):
            patch.setattr(phoneme_tokenizer, name, once(getattr(phoneme_tokenizer, name)))
        yield


@pytest.fixture
def start_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `@pytest.mark.start(...)` of a test and of its module give, to be passed on to what a
    fixture starts; of one name the test's own.
    """
    given: dict[str, Any] = {}
    for mark in request.node.iter_markers("start"):
        given = mark.kwargs | given
    return given


def pytest_collection_finish() -> None:
    """What was imported lives to the end, and would be walked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Raises UsageError for a name that no test of a collected file has: that test would slow
    `make test` down without notice.
    """
    known = set[str]()
    for item in items:
        names = {item.nodeid, item.nodeid.partition("[")[0]}
        known |= names
        if names & SLOW:
            item.add_marker(pytest.mark.slow)
    if not any("::" in argument for argument in config.args):
        files = {name.partition("::")[0] for name in known}
        stale = sorted(name for name in SLOW - known if name.partition("::")[0] in files)
        if stale:
            raise pytest.UsageError(f"tests/slow.txt names what does not exist: {', '.join(stale)}")
