"""A child process that answers one question at a time: lines of JSON, a question on its standard
input, the answer on its output.

It ends when its input does, which is when the parent closes it or is gone.
"""

import asyncio
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, cast

Answer = dict[str, Any]
START_SECONDS = 100.0
ANSWER_SECONDS = 60.0
STOP_SECONDS = 10.0
FAILED = "failed"
_LONGEST_LINE = 1 << 24


class WorkerFailed(Exception):
    """A child did not start, ended, did not answer in time, or says that it could not; the message
    says which.
    """


class Worker:
    """The parent's side. Made by `start`; `close` ends the process."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name, self._process = name, process

    @classmethod
    async def start(
        cls, module: str, *arguments: str, environ: Mapping[str, str], seconds: float = START_SECONDS
    ) -> "Worker":
        """Run `python -m module` and wait until it is ready. Raises WorkerFailed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **environ}, limit=_LONGEST_LINE,
        )  # fmt: skip
        worker = cls(module.rpartition(".")[2], process)
        try:
            await worker._answer(seconds)
        except BaseException:
            await worker.close()
            raise
        return worker

    async def ask(self, *, within: float = ANSWER_SECONDS, **question: Any) -> Answer:
        """Raises WorkerFailed; one that did not answer in time is good for nothing any more."""
        questions = cast("asyncio.StreamWriter", self._process.stdin)
        with contextlib.suppress(ConnectionError):  # one that has ended: reading reports it
            questions.write(json.dumps(question).encode() + b"\n")
            await questions.drain()
        return await self._answer(within)

    async def _answer(self, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                line = await cast("asyncio.StreamReader", self._process.stdout).readline()
        except TimeoutError:
            raise WorkerFailed(f"{self._name} did not answer within {seconds:g} s") from None
        if not line:
            raise WorkerFailed(f"{self._name} ended with status {await self._process.wait()}")
        answer: Answer = json.loads(line)
        if FAILED in answer:
            raise WorkerFailed(f"{self._name}: {answer[FAILED]}")
        return answer

    async def close(self) -> None:
        """End it; killed when it does not in time."""
        cast("asyncio.StreamWriter", self._process.stdin).close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def serve(new_answer: Callable[[], Callable[[Answer], Answer]]) -> None:
    """The child's side: make what answers, then answer until there are no more questions. What an
    answer raises is sent instead of it.
    """
    # What libraries print must not come between the lines.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(reply: Answer) -> None:
        channel.write(json.dumps(reply) + "\n")
        channel.flush()

    try:
        answer = new_answer()
    except Exception as error:
        traceback.print_exc()
        send({FAILED: _words(error)})
        return
    send({})
    for line in sys.stdin:
        try:
            send(answer(json.loads(line)))
        except Exception as error:
            traceback.print_exc()
            send({FAILED: _words(error)})


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
