"""`cosyserve up` and the stack below it: real processes that are killed, starved and interrupted."""

import asyncio
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from cosyserve.client import Client
from cosyserve.supervision.stack import StackFailed, running_stack
from tests.contract.up_process import TINY, Up
from tests.roster import Roster

SLOW_TOKENS = {"COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "4"}


def _family(up: Up) -> list[psutil.Process]:
    return psutil.Process(up.process.pid).children(recursive=True)


def _gone(processes: list[psutil.Process], seconds: float = 20) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def test_one_log_stream_and_one_ctrl_c() -> None:
    up = Up("--replicas", "token2wav=2")
    assert up.line_with("ready: ").endswith("(frontend.0, llm.0, token2wav.0, token2wav.1, orchestrator.0); Ctrl-C stops all")
    for service, label in (("LlmService", "llm.0"), ("Token2WavService", "token2wav.1"), ("SynthesisService", "orchestrator.0")):
        assert any(line.startswith(f"{label} ") and f"cosyserve.v1.{service} is ready" in line for line in up.lines)
        assert up.line_with(f"{label} serving after")
    children = _family(up)
    assert len(children) == 5
    assert up.end(signal.SIGINT) == 0
    assert _gone(children, 0)
    assert up.lines[-1] == "stopped"
    assert not any("Traceback" in line or "killed" in line for line in up.lines)


def test_interrupted_while_loading() -> None:
    up = Up()
    up.line_with("loading")
    children = _family(up)
    assert up.end(signal.SIGTERM) == 0
    assert _gone(children, 0)


def test_no_child_outlives_a_killed_parent() -> None:
    up = Up()
    up.line_with("ready: ")
    children = _family(up)
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    assert _gone(children)


def test_a_stage_that_cannot_start_is_named_with_its_exit_code() -> None:
    up = Up(environ={"COSYSERVE_LLM_NONSENSE": "1"})
    children = _family(up)
    assert up.process.wait(60) == 1
    assert "llm.0 exited with code 2 while loading; its last lines:" in up.line_with("cosyserve: ")
    assert "COSYSERVE_LLM_NONSENSE is not a setting of this service" in up.lines[-1]
    assert _gone(children, 0)


async def test_a_corrupt_model_is_shown_in_the_stages_own_words(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "model")
    (tmp_path / "model" / "llm.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(StackFailed, match=r"llm\.0 exited with code 3 while loading(.|\n)*llm\.pt"):
        async with running_stack(tmp_path / "model"):
            pytest.fail("the block must not begin")


async def test_a_replica_that_dies_is_replaced_and_an_only_one_ends_all() -> None:
    reports: list[str] = []
    back = asyncio.Event()

    def report(line: str) -> None:
        reports.append(line)
        if sum("token2wav.0 serving" in line for line in reports) == 2:
            back.set()

    roster = Roster()
    async with running_stack(TINY, replicas={"token2wav": 2}, backend="fake", environ=SLOW_TOKENS, log=roster, report=report) as stack:
        await roster.complete(token2wav=2)
        text = "The first of the two replicas is going to die while this sentence is being spoken."
        ports = {(child.name, child.replica): child.port for child in stack.children}
        async with Client(stack.address) as client:
            whole = await client.synthesize(text, seed=11).read()
            speech, heard = client.synthesize(text, seed=11), []
            async for chunk in speech:
                heard.append(chunk.audio)
                if chunk.index == 0:
                    stack.kill("token2wav", 0)
            assert b"".join(heard) == whole
            assert speech.summary is not None
            assert speech.summary.resumptions == 1
        await asyncio.wait_for(back.wait(), 60)
        assert any("token2wav.0 was killed by SIGKILL; another replica lives, starting it again in 0.5 s" in line for line in reports)
        assert {(child.name, child.replica): child.port for child in stack.children} == ports
        processes = [psutil.Process(child.pid) for child in stack.children]
        stack.kill("llm")
        with pytest.raises(StackFailed, match=r"llm\.0 was killed by SIGKILL"):
            await asyncio.wait_for(stack.wait(), 60)
        await stack.stop()
        assert await asyncio.to_thread(_gone, processes, 0)
        assert stack.children == []
