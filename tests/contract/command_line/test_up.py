"""`cosyserve up` and the stack below it: real processes that are killed, starved and
interrupted.
"""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.speech import Speech
from cosyserve.host.supervision import supervisor as stack_module
from cosyserve.host.supervision.supervisor import DeploymentFailed, LocalDeployment, local_deployment
from cosyserve.tasks import Changes
from tests.stacks.roster import Roster
from tests.stacks.up_process import TINY, Up

SLOW_TOKENS = {"COSYSERVE_LLM_FAKE_TOKEN_MILLISECONDS": "4"}


def _family(up: Up) -> list[psutil.Process]:
    return psutil.Process(up.process.pid).children(recursive=True)


def _gone(processes: list[psutil.Process], seconds: float = 20) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def test_one_log_stream_and_one_ctrl_c() -> None:
    up = Up("--replicas", "token2wav=2")
    assert up.line_with("ready: ").endswith(
        "(frontend.0, llm.0, token2wav.0, token2wav.1, orchestrator.0); Ctrl-C stops all"
    )
    for service, label in (
        ("LlmService", "llm.0"),
        ("Token2WavService", "token2wav.1"),
        ("SynthesisService", "orchestrator.0"),
    ):
        assert any(line.startswith(f"{label} ") and f"cosyserve.v1.{service} is loaded" in line for line in up.lines)
        assert up.line_with(f"{label} serving after")
    assert up.line_with("try: ") == f'try: cosyserve say "It works." --output it-works.wav --server {up.address}'
    assert sum("ready" in line for line in up.lines) == 1
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
    with pytest.raises(DeploymentFailed, match=r"llm\.0 exited with code 3 while loading(.|\n)*llm\.pt"):
        async with local_deployment(tmp_path / "model"):
            pytest.fail("the block must not begin")


class Reports:
    """What a stack reports, to be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changes = Changes()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._changes.notify()

    async def holds(self, text: str, times: int = 1) -> None:
        """Return when so many lines hold `text`. Raises TimeoutError after a minute."""
        async with asyncio.timeout(60):
            await self._changes.wait_for(lambda: sum(text in line for line in self.lines) >= times)


TEXT = "One of the services is going to die while this sentence is being spoken, and the listener shall hear all of it."


async def test_a_replica_that_dies_is_replaced() -> None:
    reports, roster = Reports(), Roster()
    async with local_deployment(
        TINY, replicas={"token2wav": 2}, backend="fake", environ=SLOW_TOKENS, log=roster, report=reports
    ) as stack:
        await roster.complete(token2wav=2)
        ports = {(child.name, child.replica): child.port for child in stack.children}
        async with AsyncClient(stack.address) as client:
            whole = await client.synthesize(TEXT, seed=11).read()
            speech, heard = client.synthesize(TEXT, seed=11), []
            async for chunk in speech:
                heard.append(chunk.audio)
                if chunk.index == 0:
                    stack.kill("token2wav", 0)
            assert b"".join(heard) == whole
            assert speech.summary.resumptions == 1
        await reports.holds("token2wav.0 serving", 2)
        assert any(
            "token2wav.0 was killed by SIGKILL; another replica lives, starting it again in 0.5 s" in line
            for line in reports.lines
        )
        assert {(child.name, child.replica): child.port for child in stack.children} == ports


async def _heard_over(
    stack: LocalDeployment, client: AsyncClient, service: str, number: signal.Signals
) -> tuple[bytes, Speech, list[str]]:
    """The audio of TEXT, spoken while `service` gets a signal behind its first chunk; and the
    processes that are alive then.
    """
    speech, heard = client.synthesize(TEXT, seed=11), []
    async for chunk in speech:
        heard.append(chunk.audio)
        if chunk.index == 0:
            stack.kill(service, number=number)
    return b"".join(heard), speech, [f"{child.name}.{child.replica}" for child in stack.children]


async def test_an_utterance_is_the_same_when_a_single_process_is_killed_or_frozen() -> None:
    reports = Reports()
    async with (
        local_deployment(TINY, backend="fake", environ=SLOW_TOKENS, report=reports) as stack,
        AsyncClient(stack.address) as client,
    ):
        whole = await client.synthesize(TEXT, seed=11).read()
        audio, speech, _ = await _heard_over(stack, client, "orchestrator", signal.SIGKILL)
        assert audio == whole
        assert speech.resumed >= 1, "the client has taken up the stream of a server that came back"
        await reports.holds(
            "orchestrator.0 was killed by SIGKILL; no other orchestrator serves, starting it again in 0.5 s"
        )
        audio, speech, _ = await _heard_over(stack, client, "llm", signal.SIGKILL)
        assert audio == whole
        await reports.holds("llm.0 was killed by SIGKILL; no other llm serves, starting it again in 0.5 s")
        begun = asyncio.get_running_loop().time()
        audio, speech, alive = await _heard_over(stack, client, "token2wav", signal.SIGSTOP)
        assert audio == whole
        assert asyncio.get_running_loop().time() - begun < 45
        await reports.holds("token2wav.0 gave no health answer for 8 s and is killed")
        assert alive == ["frontend.0", "llm.0", "token2wav.0", "orchestrator.0"]
        assert [line for line in reports.lines if "frontend.0" in line and "serving" not in line] == []


async def test_a_text_that_is_being_written_outlives_the_orchestrator() -> None:
    reports = Reports()
    async with (
        local_deployment(TINY, backend="fake", environ=SLOW_TOKENS, report=reports) as stack,
        AsyncClient(stack.address) as client,
    ):
        written = f"{TEXT} And a second one."

        async def fragments(*, killing: bool) -> AsyncIterator[str]:
            yield f"{TEXT} And"
            if killing:
                await killed.wait()
            yield " a second one."

        killed = asyncio.Event()
        whole = await client.streaming_synthesize(fragments(killing=False), seed=11).read()
        async with client.streaming_synthesize(fragments(killing=True), seed=11) as speech:
            heard = []
            async for chunk in speech:
                heard.append(chunk.audio)
                if chunk.index == 0:
                    stack.kill("orchestrator")
                    killed.set()
        assert b"".join(heard) == whole
        assert len(whole) > 0.9 * len(await client.synthesize(written, seed=11).read())
        assert speech.resumed >= 1


async def test_a_service_that_cannot_come_back_ends_all_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_module, "_MOST_RESTARTS", 1)
    reports = Reports()
    async with local_deployment(TINY, replicas={"token2wav": 2}, backend="fake", report=reports) as stack:
        processes = [psutil.Process(child.pid) for child in stack.children]
        stack.kill("token2wav", 1)
        await reports.holds("token2wav.1 serving", 2)
        stack.kill("token2wav", 1)
        await reports.holds(
            "token2wav.1 was killed by SIGKILL, 1 restarts did not help; the other replicas of token2wav go on without "
            "it"
        )
        stack.kill("llm")
        await reports.holds("llm.0 serving", 2)
        stack.kill("llm")
        with pytest.raises(
            DeploymentFailed,
            match=r"llm\.0 was killed by SIGKILL, 1 restarts did not help; its last lines:(.|\n)*is loaded",
        ):
            await asyncio.wait_for(stack.wait(), 60)
        await stack.stop()
        assert await asyncio.to_thread(_gone, processes, 0)
        assert stack.children == []
