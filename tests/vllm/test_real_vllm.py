"""The backend on the real library generates the tokens of the torch backend, with both conversions:
alone, in a batch, and with text that arrives over time. A cancelled sentence is aborted, and an
engine that is killed while idle is a fault.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from services.llm.backends.backend import Backend
from services.llm.generation.request import Generation, Grouping, Profile, Prompt, Sampling
from services.llm.hosted.hosted_backend import HostedBackend
from services.llm.loading import load_backend
from services.llm.settings import LlmSettings
from tests.unit.llm.tiny_llm import arriving, tokens
from tests.vllm.conftest import MODEL

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = Prompt(tuple(range(5, 25)), tuple(range(100, 160, 2)))
SECONDS_TO_NOTICE = 10


@dataclass(frozen=True)
class Both:
    """The hosted backend and what it is compared with. faults: reasons passed to on_fault."""

    hosted: HostedBackend
    torch: Backend
    faults: "asyncio.Queue[str]"


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["hf", "vllm"])
async def both(request: pytest.FixtureRequest, conversions: Path) -> AsyncIterator[Both]:
    faults: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    common = {"listen": "127.0.0.1:0", "model": MODEL, "max_positions": 1024, "max_sequences": 4, "max_waiting": 8}
    torch = load_backend(LlmSettings(**common, backend="torch", device="cpu"))  # type: ignore[arg-type]
    wanted = LlmSettings(**common, backend="vllm", converted=conversions / request.param, kv_budget_mib=64)  # type: ignore[arg-type]
    hosted = await asyncio.to_thread(
        load_backend, wanted, lambda reason: loop.call_soon_threadsafe(faults.put_nowait, reason)
    )
    assert isinstance(hosted, HostedBackend)
    try:
        await hosted.warm_up()
        yield Both(hosted, torch, faults)
    finally:
        await hosted.close()
        await torch.close()


def sentence(seed: int, profile: Profile = Profile.CONTINUOUS, prompt: Prompt = PROMPT) -> Generation:
    """Of 3 to 8 text ids."""
    text = tuple((11 * seed + 7 * word) % 60 + 3 for word in range(3 + seed % 6))
    return Generation(
        prompt=prompt, text=text, sampling=Sampling(seed=seed, profile=profile), grouping=Grouping(first=5, rest=5)
    )


async def test_tokens_are_those_of_torch(both: Both) -> None:
    count = 0
    for seed in range(6):
        for profile in Profile:
            wanted = await tokens(both.torch, sentence(seed, profile, PROMPT if seed % 2 else Prompt()))
            assert await tokens(both.hosted, sentence(seed, profile, PROMPT if seed % 2 else Prompt())) == wanted
            count += len(wanted)
    assert count > 50
    print(f"{count} tokens in {6 * len(Profile)} sentences are equal")


async def test_eight_in_company_are_those_of_torch(both: Both) -> None:
    together = await asyncio.gather(*(tokens(both.hosted, sentence(seed)) for seed in range(8)))
    assert together == [await tokens(both.torch, sentence(seed)) for seed in range(8)]
    assert both.hosted.admission.admitted == 0


async def test_text_that_arrives_makes_the_tokens_of_torch(both: Both) -> None:
    text = list(range(10, 31))
    for cut in (2, 9):
        pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
        results = [
            await tokens(
                on,
                Generation(
                    prompt=PROMPT, text=arriving(*pieces), sampling=Sampling(seed=5), grouping=Grouping(first=5)
                ),
            )
            for on in (both.hosted, both.torch)
        ]
        assert results[0] == results[1] != []


async def test_who_hangs_up_leaves_nothing_behind(both: Both) -> None:
    async with contextlib.aclosing(both.hosted.generate(sentence(8))) as hops:
        async for hop in hops:
            if hop.tokens:
                break
    assert both.hosted.admission.admitted == 0
    engine = both.hosted._runtime._engine  # type: ignore[attr-defined]
    async with asyncio.timeout(30):
        while engine.output_processor.has_unfinished_requests():
            await asyncio.sleep(0.01)
    assert await tokens(both.hosted, sentence(3)) == await tokens(both.torch, sentence(3))


async def test_an_engine_that_is_killed_while_idle_is_noticed(both: Both) -> None:
    """The last test of each form: the engine is gone behind it."""
    assert both.faults.empty()
    children = psutil.Process().children()
    assert children
    cores = [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]
    for core in cores:
        os.kill(core.pid, signal.SIGKILL)
    async with asyncio.timeout(SECONDS_TO_NOTICE):
        assert "has ended" in await both.faults.get()
