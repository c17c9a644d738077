"""The processes that align: started when needed, ended with the request that they work for,
replaced when they are lost; what they answer does not depend on what came before.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence

import numpy as np
import psutil
import pytest
import pytest_asyncio

from cosyserve.spec import SAMPLE_RATE
from services.orchestrator.aligning import worker, workers
from services.orchestrator.aligning.acoustic import AcousticModel
from services.orchestrator.aligning.untimed import Reason, Untimed
from services.orchestrator.aligning.workers import AlignerWorkers

NOISE = (np.random.default_rng(1).normal(size=SAMPLE_RATE) * 3000).astype("<i2").tobytes()


@pytest_asyncio.fixture
async def aligners() -> AsyncIterator[AlignerWorkers]:
    running = AlignerWorkers.installed(1, 60.0)
    assert running.count == 1
    yield running
    await running.close()
    assert processes() == []


def processes() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if any("aligning.worker" in part for part in child.cmdline())]


async def refusal(aligners: AlignerWorkers, words: Sequence[str], pcm: bytes = NOISE) -> Reason:
    with pytest.raises(Untimed) as refused:
        await aligners.align(words, pcm)
    return refused.value.reason


async def test_a_process_serves_one_after_another_and_a_lost_one_is_replaced(aligners: AlignerWorkers) -> None:
    assert processes() == []
    reasons = await asyncio.gather(refusal(aligners, ["hello"]), refusal(aligners, ["你好"]))
    assert reasons == [Reason.NOT_ALIGNED, Reason.LANGUAGE]
    (first,) = processes()
    first.kill()
    assert await refusal(aligners, ["hello", "there"], b"") is Reason.NOT_ALIGNED
    (second,) = processes()
    assert second.pid != first.pid


async def test_a_request_that_is_cancelled_ends_the_work_for_it(aligners: AlignerWorkers) -> None:
    assert await refusal(aligners, ["你好"]) is Reason.LANGUAGE
    (before,) = processes()
    before.suspend()  # in the middle of its work
    working = asyncio.create_task(aligners.align(["hello"], NOISE))
    waiting = asyncio.create_task(aligners.align(["hello"], NOISE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in (waiting, working):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not before.is_running()
    assert await refusal(aligners, ["你好"]) is Reason.LANGUAGE


async def test_a_process_that_others_wait_for_is_not_ended(aligners: AlignerWorkers) -> None:
    assert await refusal(aligners, ["你好"]) is Reason.LANGUAGE
    (before,) = processes()
    before.suspend()
    working = asyncio.create_task(aligners.align(["hello"], NOISE))
    await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(refusal(aligners, ["你好"])) for _ in range(8)]
    await asyncio.sleep(0.05)
    assert await refusal(aligners, ["hello"]) is Reason.BUSY
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    before.resume()
    assert await asyncio.gather(*waiting) == [Reason.LANGUAGE] * 8
    assert processes() == [before]
    await aligners.close()
    assert await refusal(aligners, ["hello"]) is Reason.NO_ALIGNER


async def test_without_processes_there_are_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await refusal(AlignerWorkers(), ["hello"]) is Reason.NO_ALIGNER
    monkeypatch.setattr(workers, "find_spec", lambda _: None)
    assert AlignerWorkers.installed(4, 1.0).count == 0


async def test_processes_that_do_not_start_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.sys, "executable", "/bin/false")
    aligners = AlignerWorkers(1, 1.0)
    assert [await refusal(aligners, ["hello"]) for _ in range(4)] == [Reason.NOT_ALIGNED] * 3 + [Reason.NO_ALIGNER]


def test_a_request_that_breaks_off_ends_the_process() -> None:
    whole = json.dumps({"words": ["你好"], "bytes": 4}).encode() + b"\n" + bytes(4)
    answers = io.BytesIO()
    worker.serve(io.BytesIO(whole + whole[:-1]), answers)
    assert answers.getvalue() == b'{}\n{"reason": "language"}\n'


def test_the_dictionary_is_read_again_when_much_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.aligning.acoustic._MOST_ADDED", 1)
    model = AcousticModel()
    decoders = []
    for word in ("/AA/", "/AA AA/", "/AA AA AA/"):
        with pytest.raises(Untimed):
            model.align([word], NOISE)
        model.tidy()
        decoders.append(model._decoder)
    assert decoders[0] is not decoders[1]
    assert decoders[1] is decoders[2]
