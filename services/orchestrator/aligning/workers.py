"""The worker processes: each starts when it is first needed and aligns one sentence at a time."""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from cosyserve.tasks import cancel_all, retrieve_error
from services.orchestrator.aligning.untimed import Reason, Untimed

log = logging.getLogger(__name__)
PACKAGE = "pocketsphinx"
Span = tuple[float, float]
"""Start and end of a word, in seconds from the first sample."""
_READY_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
"""A worker that takes longer for a sentence is given up; one takes some hundredths of the length of
the sound, at the lowest priority.
"""
_MOST_FAILURES = 3
_MOST_WAITING = 8
"""Sentences for each process that may wait for a turn: less than a second of work."""
_ANSWER_BYTES = 1 << 20
_Answer = dict[str, Any]


class AlignerWorkers:
    """Up to `count` processes; 0: none. wait_seconds: how long the end of a request waits for times
    that are not known yet. Bound to one event loop.
    """

    def __init__(self, count: int = 0, wait_seconds: float = 0.0) -> None:
        self.wait_seconds = wait_seconds
        self._count = count
        self._turns = asyncio.Semaphore(max(count, 1))
        self._queued = 0
        self._idle: list[_Worker] = []
        self._jobs: set[asyncio.Task[_Answer | None]] = set()
        self._closed = False
        self._failures = 0
        """Starts in a row that failed."""

    @classmethod
    def installed(cls, count: int, wait_seconds: float) -> "AlignerWorkers":
        """None where the package is missing."""
        return cls(count if find_spec(PACKAGE) is not None else 0, wait_seconds)

    @property
    def count(self) -> int:
        """Processes at most; 0 where they do not start, and at the end."""
        return 0 if self._closed or self._failures >= _MOST_FAILURES else self._count

    async def align(self, words: Sequence[str], pcm: bytes) -> list[Span]:
        """The span of each word. pcm: mono s16le at 24 kHz. Raises Untimed, at once where too many
        wait. If the caller is cancelled, the process that works for it is killed, unless others
        wait for it: a new one would take longer to start than this one to end its sentence.
        """
        if not self.count:
            raise Untimed(Reason.NO_ALIGNER)
        if self._queued >= _MOST_WAITING * self._count:
            raise Untimed(Reason.BUSY)
        self._queued += 1
        try:
            await self._turns.acquire()
        finally:
            self._queued -= 1
        job = asyncio.create_task(self._job(words, pcm))
        self._jobs.add(job)
        job.add_done_callback(self._over)
        try:
            answer = await asyncio.shield(job)
        except asyncio.CancelledError:
            if not self._queued:
                await cancel_all([job])
            raise
        if answer is None:
            raise Untimed(Reason.NOT_ALIGNED)
        if "spans" not in answer:
            raise Untimed(Reason(answer["reason"]))
        return [(float(start), float(end)) for start, end in answer["spans"]]

    def _over(self, job: "asyncio.Task[_Answer | None]") -> None:
        self._jobs.discard(job)
        self._turns.release()
        retrieve_error(job)

    async def _job(self, words: Sequence[str], pcm: bytes) -> _Answer | None:
        # One that has waited may have been ended from outside: then a fresh one does its work.
        answer = await self._ask(self._idle.pop(), words, pcm) if self._idle else None
        return answer or await self._ask(_Worker(), words, pcm)

    async def _ask(self, worker: "_Worker", words: Sequence[str], pcm: bytes) -> _Answer | None:
        """The answer of `worker`, which is idle afterwards; None if it was lost."""
        kept = False
        try:
            answer = await worker.ask(words, pcm)
            kept = True
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:  # TimeoutError is one of them
            self._failures += not worker.ready
            log.warning("a word aligner was lost: %s", type(error).__name__)
            return None
        finally:
            if not kept:
                await asyncio.shield(worker.kill())
        self._failures = 0
        self._idle.append(worker)
        return answer

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        await cancel_all(list(self._jobs))
        for worker in self._idle:
            await worker.kill()
        self._idle.clear()


class _Worker:
    """One process, not started yet."""

    def __init__(self) -> None:
        self.ready = False
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, words: Sequence[str], pcm: bytes) -> _Answer:
        """The answer of the process, which is started if it is not yet. Raises what says that it is
        lost.
        """
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "services.orchestrator.aligning.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_ANSWER_BYTES,
            )
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise OSError("the process has no pipes")
        if not self.ready:
            async with asyncio.timeout(_READY_SECONDS):
                await _read(answers)
            self.ready = True
        async with asyncio.timeout(_ANSWER_SECONDS):
            requests.write(json.dumps({"words": list(words), "bytes": len(pcm)}).encode() + b"\n" + pcm)
            await requests.drain()
            return await _read(answers)

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


async def _read(answers: asyncio.StreamReader) -> _Answer:
    answer = json.loads(await answers.readuntil())
    if not isinstance(answer, dict):
        raise ValueError("an answer is no object")
    return answer
