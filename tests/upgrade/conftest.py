"""The stages of this tree and of the last release, each a process that all tests of a module share:
only what is in front of them changes from test to test.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from tests.upgrade.processes import STAGES, orchestrator, stage
from tests.upgrade.trees import THIS, CommitMissing, Tree, last_release, unpacked

Mix = tuple[str, str, str, str]
"""Which release the orchestrator is of, then frontend, llm and token2wav: "new" or "old"."""


@dataclass(frozen=True)
class Releases:
    """trees: "new" is what is checked out, "old" the last release. stages: addresses by release and
    name.
    """

    trees: Mapping[str, Tree]
    stages: Mapping[tuple[str, str], str]
    voices: Path
    _number: "itertools.count[int]" = field(default_factory=itertools.count)

    def mixed(self, mix: Mix, port: int = 0, **settings: str) -> "contextlib.AbstractAsyncContextManager[str]":
        """The address of an orchestrator in front of one process of each stage. settings: of the
        orchestrator.
        """
        stages = {name: self.stages[release, name] for name, release in zip(STAGES, mix[1:], strict=True)}
        return orchestrator(self.trees[mix[0]], stages, port, **settings)

    def fresh_name(self) -> str:
        """Of a voice that no test has made."""
        return f"made-{next(self._number)}"


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tree]:
    """A clone without the commit of the last release fails the tests: what is not there was not
    tested.
    """
    try:
        old = unpacked(*last_release(), tmp_path_factory.mktemp("old"))
    except CommitMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    return {"new": THIS, "old": old}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def releases(trees: dict[str, Tree], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Releases]:
    voices = tmp_path_factory.mktemp("voices")
    async with contextlib.AsyncExitStack() as exits:
        places = list(itertools.product(trees, STAGES))
        starting = [exits.enter_async_context(stage(trees[release], name, voices)) for release, name in places]
        addresses = await asyncio.gather(*starting)
        yield Releases(trees, dict(zip(places, addresses, strict=True)), voices)
