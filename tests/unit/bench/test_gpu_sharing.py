"""What is measured of two engines on one GPU, as far as a CPU can: processes that answer, tokens at
a pace, the service.
"""

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.gpu.sharing import decoding, service
from bench.gpu.sharing.__main__ import SharingProcesses, attempted, failed, measure
from bench.gpu.sharing.decoding import Ear, Speaker
from bench.gpu.sharing.rows import ROWS, Decoding, Row, sharing, spans
from bench.gpu.sharing.worker import FAILED, Worker, WorkerFailed
from bench.parts.part import ResultsFile
from cosyserve.errors import Unavailable
from cosyserve.host.supervision.layout import ProcessSpec
from cosyserve.model_directory import ModelDirectory
from cosyserve.v1 import token2wav_pb2
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.engine.stepper import Stepper
from services.llm.engine.weights import load_tensors
from services.llm.generation.config import read_config
from services.llm.generation.request import Hop
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from tests.contract.token2wav.token2wav_service import serving
from tests.unit.cosyserve.host.supervision.fake_mps import put_program
from tests.unit.token2wav.speaking import GOLDEN

ROOT = Path(__file__).parents[3]
ASKED = "tests.unit.bench.asked"
ENVIRON = {"PYTHONPATH": str(ROOT)}


async def test_a_process_answers_until_it_ends() -> None:
    worker = await Worker.start(ASKED, "ready", environ=ENVIRON)
    try:
        assert await worker.ask(do="double", of=21) == {"twice": 42}
        with pytest.raises(WorkerFailed, match="asked: KeyError: 'dance'"):
            await worker.ask(do="dance")
        assert await worker.ask(do="double", of=4) == {"twice": 8}
        with pytest.raises(WorkerFailed, match="asked ended with status 3"):
            await worker.ask(do="end")
    finally:
        await worker.close()


async def test_a_process_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.gpu.sharing.worker.STOP_SECONDS", 0.1)
    worker = await Worker.start(ASKED, "ready", environ=ENVIRON)
    with pytest.raises(WorkerFailed, match=r"did not answer within 0\.1 s"):
        await worker.ask(do="wait", within=0.1)
    await worker.close()
    with pytest.raises(WorkerFailed, match=r"ValueError: no such device$"):
        await Worker.start(ASKED, "not ready", environ=ENVIRON)


def test_tokens_keep_their_pace() -> None:
    now, slept = [10.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    ear = Ear(0.002, lambda: now[0], sleep)
    for passed in (0.0, 0.0005, 0.003):
        now[0] += passed
        ear.deliver(Hop([5]))
    assert ear.begun.is_set()
    assert not ear.over.is_set()
    assert slept == [pytest.approx(0.0015)]
    assert ear.intervals == [pytest.approx(2.0), pytest.approx(3.0)]
    ear.deliver(ValueError("broken"))
    assert str(ear.error) == "broken"
    assert ear.over.is_set()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The readable model, in place of fused steps."""
    monkeypatch.setattr(decoding, "TEXT_IDS", 4)
    directory, cpu = ModelDirectory(GOLDEN), torch.device("cpu")
    config = read_config(directory)
    model = SpeechTokenModel.build(config, load_tensors(directory, config), cpu)
    readable = Engine(config, Limits(running=2, waiting=2), partial(Stepper, model))
    monkeypatch.setattr(Speaker, "_new_engine", lambda self, way: readable)
    yield readable
    readable.close()


@pytest.mark.parametrize("sentences", [1, 2])
def test_sentences_follow_each_other_until_they_are_hushed(engine: Engine, sentences: int) -> None:
    speaker = Speaker()
    assert speaker.answer({"do": "talk", "way": "high", "pace": 0.0, "sentences": sentences}) == {}
    assert speaker._talk
    first = [ears[0] for ears in speaker._talk._ears]
    for ear in first:
        assert ear.over.wait(60)
        assert not ear.error
    times = speaker.answer({"do": "hush"})["ms"]
    # Those that came after the first count too.
    assert len(times) >= sum(len(ear.intervals) for ear in first) >= 7 * sentences
    assert speaker.answer({"do": "hush"}) == {"ms": []}


def test_the_error_of_a_sentence_is_raised(engine: Engine) -> None:
    speaker = Speaker()
    speaker.answer({"do": "talk", "way": "high", "pace": 0.0, "sentences": 1})
    assert speaker._talk
    engine.close()
    for thread in speaker._talk._threads:
        thread.join(60)
    with pytest.raises(Unavailable, match="shutting down"):
        speaker.answer({"do": "hush"})


async def test_the_service_reports_its_first_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WARM", 1)
    async with serving(load_backend("torch", EngineSettings(model=GOLDEN))) as loopback:
        times = await service.first_passes(loopback.stub, 0.0, least=1)
        monkeypatch.setattr(service, "_setup", token2wav_pb2.DecodeSetup)
        with pytest.raises(WorkerFailed, match="a sentence ended with INVALID_ARGUMENT: "):
            await service.first_passes(loopback.stub, 0.0)
    assert {name: len(values) for name, values in times.items()} == {"flow": 1, "vocoder": 1, "sound": 1}
    assert all(0 < flow < sound for flow, sound in zip(times["flow"], times["sound"], strict=True))


class Members(SharingProcesses):
    """Without processes: every token after 0.5 ms, every pass in 12; `breaks` are ways that
    fail.
    """

    def __init__(self, breaks: str) -> None:
        super().__init__({})
        self.breaks, self.asked, self.closed = breaks, list[dict[str, Any]](), 0

    async def process(self, name: str) -> Any:
        return self

    async def first_passes(self, seconds: float) -> dict[str, list[float]]:
        return {"flow": [12.0], "vocoder": [0.5], "sound": [14.0]}

    async def ask(self, **question: Any) -> dict[str, Any]:
        self.asked.append(question)
        if question.get("way") == self.breaks:
            raise WorkerFailed("out of memory")
        return {"ms": [0.5, 0.6] if "do" in question else [12.0, 13.0, 20.0]}

    async def close(self) -> None:
        self.closed += 1


async def test_a_row_that_fails_says_why_and_the_next_one_is_measured() -> None:
    company = Members(breaks="apart")
    results = {row.name: await attempted(company, row, 0.0) for row in ROWS}
    assert len(results) == len(ROWS)
    broken = [row for row in ROWS if row.way == "apart"]
    assert company.closed == len(broken)
    assert all(results[row.name] == {FAILED: "out of memory"} for row in broken)
    whole = results[Row(True, Decoding()).name]
    assert whole["passes"]["1"] == whole["passes"]["4"] == {"p50": 13.0, "p95": 13.0, "count": 3}
    assert whole["llm"]["token"]["p50"] == pytest.approx(0.55)
    assert "passes" not in results[Row(True, Decoding(), units=()).name]
    assert "llm" not in results[Row(True, None).name]
    talked = [question for question in company.asked if question.get("do") == "talk"]
    assert {"do": "talk", "way": "high", "pace": 0.005, "sentences": 1} in talked
    lines = sharing({"sharing": results})
    assert "| together | one sentence, high priority | as served | 13 | 13 | 13 | 13 | 0.55 | 0.5 |  |" in lines
    assert "| together | one sentence, high priority | a product a launch |  |  |  |  |  |  | out of memory |" in lines
    assert "| together | idle | 12 | 12 | 0.5 | 0.5 | 14 | 14 |  |  |  |" in lines


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultsFile:
    """Of a measurement without processes and with the kernels in /kept."""
    monkeypatch.setattr("bench.gpu.sharing.__main__._kernels", lambda: "/kept")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return ResultsFile(tmp_path / "sharing.json")


async def test_where_no_gpu_can_be_shared_every_row_says_so(
    results: ResultsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.gpu.sharing.__main__.shared_gpu", unshared)
    rows = [row for row in ROWS if row.together]
    await measure(GOLDEN, 0.0, results, rows)
    assert json.loads((tmp_path / "sharing.json").read_text()) == {
        row.name: {FAILED: "there is no GPU to share"} for row in rows
    }
    assert failed(results)


@contextlib.asynccontextmanager
async def unshared(places: list[ProcessSpec], how: str, say: object) -> AsyncIterator[list[ProcessSpec]]:
    yield places


async def test_both_ways_are_measured_with_their_environment(
    results: ResultsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MPS_CALLS", str(tmp_path / "calls"))
    companies: list[Mapping[str, ProcessSpec]] = []

    def company(places: Mapping[str, ProcessSpec]) -> Members:
        companies.append(places)
        return Members(breaks="")

    monkeypatch.setattr("bench.gpu.sharing.__main__.SharingProcesses", company)
    await measure(GOLDEN, 0.0, results)
    assert [name for name, figures in results.items() if FAILED in figures] == []
    assert list(results) == [row.name for row in ROWS]
    in_turns, together = companies
    assert "CUDA_MPS_CLIENT_PRIORITY" not in in_turns["llm"].environ
    assert [together[name].environ["CUDA_MPS_CLIENT_PRIORITY"] for name in ("llm", "token2wav")] == ["0", "1"]
    assert (
        together["llm"].environ["CUDA_MPS_PIPE_DIRECTORY"] == together["token2wav"].environ["CUDA_MPS_PIPE_DIRECTORY"]
    )
    assert together["token2wav"].environ["TRITON_CACHE_DIR"] == "/kept"
    assert not failed(results)


async def test_where_a_daemon_runs_already_nothing_is_measured_in_turns(
    results: ResultsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    rows = [row for row in ROWS if not row.together]
    await measure(GOLDEN, 0.0, results, rows)
    assert dict(results) == {row.name: {FAILED: "an MPS daemon is there already"} for row in rows}


async def test_a_process_that_does_not_start_is_not_tried_for_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[str] = []

    async def start(module: str, *, environ: Any) -> Worker:
        starts.append(module)
        raise WorkerFailed("no such device")

    async def serve(place: ProcessSpec) -> service.Service:
        starts.append(place.service)
        raise WorkerFailed("no such port")

    monkeypatch.setattr(Worker, "start", start)
    monkeypatch.setattr(service.Service, "start", serve)
    company = SharingProcesses({name: ProcessSpec(name, 0, "127.0.0.1:1", {}) for name in ("llm", "token2wav")})
    for row in ROWS:
        why = "no such port" if row.service and not row.llm else "no such device"
        assert await attempted(company, row, 0.0) == {FAILED: why}
    assert sorted(starts) == ["bench.gpu.sharing.decoding"] * 2 + ["bench.gpu.sharing.passes"] * 2 + ["token2wav"] * 2


def test_spans() -> None:
    assert spans([]) == {}
    assert spans(list(range(101))) == {"p50": 50, "p95": 95, "count": 101}
    assert len({row.name for row in ROWS}) == len(ROWS)
