"""LlmService: words that are spoken twice end a guarded call with REPEATED; otherwise the call
returns the tokens and their alignment.
"""

from collections.abc import Iterator

import grpc
import pytest
from cosyserve.rpc.calls import as_error

from cosyserve.errors import Repeated
from services.llm.backends.fake_backend import FakeBackend
from services.llm.generation.request import Generation
from services.llm.settings import LlmSettings
from tests.contract.llm.llm_service import generate, joined, served, status
from tests.unit.llm.guards.test_alignment import sharp, token

IDS = (0, 1, 2, 3, 4, 5)
ONCE = [token(each) for each in IDS for _ in range(4)]
TWICE = [token(each) for each in (0, 1, 2, 3, 4, 1, 2, 3, 4, 5) for _ in range(4)]


class Says(FakeBackend):
    """Generates the given tokens, whatever the text is."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(LlmSettings(listen="127.0.0.1:0", backend="fake"))
        self.alignment = sharp()
        self._said = tokens

    def _tokens(self, generation: Generation, text_id: int, first: int) -> Iterator[int]:
        each = -(-len(self._said) // len(IDS))
        yield from self._said[first : first + each]


@pytest.mark.parametrize("guards", [False, True])
async def test_once_is_told_with_its_places(guards: bool) -> None:
    async with served(Says(ONCE)) as stub:
        messages = await generate(stub, IDS, guards=guards)
    assert joined(messages) == ONCE
    assert messages[0].text_starts_follow
    assert list(messages[-1].summary.text_starts) == [0, 4, 8, 12, 16, 20]


async def test_twice_fails_when_it_is_guarded() -> None:
    async with served(Says(TWICE)) as stub:
        assert joined(await generate(stub, IDS)) == TWICE
        error = await status(generate(stub, IDS, guards=True))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert isinstance(as_error(error, "llm at here"), Repeated)
