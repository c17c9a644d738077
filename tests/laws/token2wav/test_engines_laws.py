"""Law: with engines too the served samples are a function of the request, not of hops, messages or
earlier requests.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.token2wav.decoders.backend import Backend
from services.token2wav.inputs.request import Growth, Hops, Sentence
from services.token2wav.scheduling.batcher import Batcher
from tests.unit.token2wav.engines.engines import onnx_backend
from tests.unit.token2wav.speaking import batching, speak, tokens, voice


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Backend:
    return onnx_backend(Path(tmp_path_factory.mktemp("engines")))


@pytest_asyncio.fixture
async def batcher(backend: Backend) -> AsyncIterator[Batcher]:
    async with batching(backend.decoders) as running:
        yield running


@pytest.mark.parametrize(("prompt", "speed", "length"), [(0, 1.0, 4), (20, 1.25, 64), (25, 1.0, 28), (30, 1.0, 41)])
async def test_streamed_is_whole(batcher: Batcher, prompt: int, speed: float, length: int) -> None:
    whole = await speak(batcher, Sentence(voice(prompt), seed=7, hops=Hops(100), speed=speed), tokens(length))
    assert len(whole) == 2 * 480 * int(2 * length / speed)
    for hops, message in ((Hops(), 1), (Hops(30, Growth.EXPONENTIAL), 7)):
        assert (
            await speak(batcher, Sentence(voice(prompt), seed=7, hops=hops, speed=speed), tokens(length), message)
            == whole
        )


@pytest.mark.parametrize("start_sample", [1, 25 * 960 + 17])
async def test_resumed_is_the_tail(batcher: Batcher, start_sample: int) -> None:
    whole = await speak(batcher, Sentence(voice(20), seed=5), tokens(50))
    assert (
        await speak(batcher, Sentence(voice(20), seed=5, start_sample=start_sample), tokens(50))
        == whole[2 * start_sample :]
    )


async def test_the_next_request_is_the_first(batcher: Batcher) -> None:
    first = await speak(batcher, Sentence(voice(20, key="v"), seed=3), tokens(30))
    await speak(batcher, Sentence(voice(0), seed=4), tokens(60, offset=2))
    assert await speak(batcher, Sentence(voice(20, key="v"), seed=3), tokens(30)) == first
    assert await speak(batcher, Sentence(voice(20), seed=9), tokens(30)) != first
