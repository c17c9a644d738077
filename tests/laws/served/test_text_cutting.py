"""Any cutting of any text gives the same samples: hypothesis over the fake engines, real services
and real gRPC on loopback.

TEXT_CUTTINGS: examples for each model and mode, 20 by default.
"""

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cosyserve.client import AsyncClient
from cosyserve.errors import InvalidRequest
from tests.stacks.calls import heard, one_by_one
from tests.stacks.whole_stack import fake_stack

pytestmark = pytest.mark.asyncio(loop_scope="module")
PIECES = (
    "Hello ",
    "world", ". ", "! ", "?", "Dr. ", "3.14", "$5 ", "May 1st, 2024 ", "你好", "，", "。", "世界", "e\u0301",
    "👩‍👩‍👧 ", "\n",
    '"',
    " ",
    "Chapter IV ", "account number is ", "48210937", "5 ft ", "11 in ", "tall ", "a 20 A fuse ", "3-4 ", "million ",
    "St. ", "No. ",
    "1) ", "x < ",
    "10⁶ ", "GPUs ", "the ", "a ", "read ", "U.S. ", "www.a.b/c?d ", "1,000 ", "word, ", "[breath] ", "<|im_end|>",
    "-", "'s ", "...", "[HH][AH0]", "[ǐ] ",
)  # fmt: skip
MODELS = ("models/demo", "tests/golden/tiny", "tests/golden/tiny3")
EXAMPLES = int(os.environ.get("TEXT_CUTTINGS", "20"))
TEXT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=30).map("".join)
CUTS = st.lists(st.integers(0, 400), max_size=12)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODELS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    """Phonemes, and BPE of each generation."""
    async with fake_stack(Path(request.param)) as connected:
        yield connected


async def spoken(client: AsyncClient, fragments: list[str], mode: str) -> tuple[bytes, int] | str:
    """The samples and the number of sentences, or why there are none."""

    try:
        async with client.streaming_synthesize(one_by_one(fragments), seed=2, mode=mode) as speech:  # type: ignore[arg-type]
            audio, _, summary = await heard(speech)
    except InvalidRequest as error:
        return error.message.partition(": ")[2]
    return audio, summary.sentences


def fragments(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


@pytest.mark.parametrize("mode", ["sentences", "tokens"])
@settings(
    deadline=None,
    max_examples=int(os.environ.get("TEXT_CUTTINGS", "20")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=TEXT, cuts=CUTS)
@example(text="word " * 90 + "end", cuts=[1, 399, 400])
@example(text="你好，世界，" * 40, cuts=[5, 100])
async def test_any_cutting_gives_the_same_samples(client: AsyncClient, mode: str, text: str, cuts: list[int]) -> None:
    whole = await spoken(client, [text], mode)
    assert await spoken(client, fragments(text, cuts), mode) == whole
    if len(text) < 60:
        assert await spoken(client, list(text), mode) == whole
