"""Runs parts: each in processes of its own, stopped at its limit; one that fails stops no other."""

import asyncio
import collections
import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from bench.parts.ledger import DONE, FAILED, LATE, Ledger, Run
from bench.parts.part import Part, together, write
from bench.parts.progress import Progress
from bench.parts.provenance import ROOT

SIDE_BY_SIDE = 3
"""Parts that take no times and share the machine."""
STOP_SECONDS = 15.0
"""What a part that is stopped has to end its services; then it is killed."""
LEAST_SECONDS = 5.0
"""With less left a part is not begun."""
LINES_KEPT = 8
TICK_SECONDS = 1.0


async def run(
    parts: Sequence[Part], ledger: Ledger, budget: float = float("inf"), progress: Progress | None = None
) -> None:
    """All parts that are due, one after the other. budget: seconds in all, the end of a part that
    is stopped included; what does not fit is left out, to be run the next time."""
    due, by_name = [part for part in parts if ledger.due(part)], {part.name: part for part in parts}
    progress = progress or Progress(len(parts), len(parts) - len(due))
    end = time.monotonic() + budget - STOP_SECONDS
    for group in together(due, SIDE_BY_SIDE):
        left = end - time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for part in group:
                missing = next((name for name in part.needs if name in by_name and ledger.lacks(by_name[name])), None)
                late = "no time is left for it" if left < LEAST_SECONDS else ""
                why = part.prevented or (f"{missing} is not done" if missing else late)
                if not why:
                    tasks.create_task(_part(part, min(part.limit, left), ledger, progress))
                else:
                    ledger.leave_out(part, why)
                    progress.left(part.name, why)


async def _part(part: Part, limit: float, ledger: Ledger, progress: Progress) -> None:
    progress.begin(part.name, limit)
    began, last = time.monotonic(), collections.deque[str](maxlen=LINES_KEPT)
    ledger.begin(part)
    log = part.log(ledger.out)
    log.parent.mkdir(parents=True, exist_ok=True)
    ticking = asyncio.create_task(_tick(progress))
    try:
        with log.open("w") as file:
            state = await _commands(
                part, limit, _Heard(part, file, last, progress, part.answer(ledger.out) if part.answers else None)
            )
        if part.answers:
            _keep_answer(part, ledger)
    finally:
        ticking.cancel()
    last_lines = [] if state == DONE else list(last)
    commands = [shlex.join(["python", *command]) for command in part.commands]
    ledger.note(part, Run(state, round(time.monotonic() - began, 1), commands, last_lines, part.under))
    progress.end(part.name, state)


def _keep_answer(part: Part, ledger: Ledger) -> None:
    """The figures that the part printed; none where they are no JSON, as of a failed command."""
    with contextlib.suppress(ValueError):
        write(part.figures(ledger.out), json.loads(part.answer(ledger.out).read_text(encoding="utf-8")))


async def _tick(progress: Progress) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        progress.show()


class _Heard:
    """Where the lines of a part go. answer: the file of its standard output where that is its
    figures.
    """

    def __init__(
        self, part: Part, file: TextIO, last: collections.deque[str], progress: Progress, answer: Path | None
    ) -> None:
        self.answer = answer
        self._part, self._file, self._last, self._progress = part, file, last, progress
        self._stopped = False

    def stopped(self, text: str) -> None:
        """What is printed from here on is the end that was forced on it, and goes to the log
        alone.
        """
        self.line(text)
        self._stopped = True

    def line(self, text: str) -> None:
        if text.strip():
            self._file.write(text + "\n")
            self._file.flush()
            if not self._stopped:
                self._last.append(text)
            self._progress.says(self._part.name, text)


async def _commands(part: Part, limit: float, heard: _Heard) -> str:
    codes = await asyncio.gather(*(_command(command, limit, heard) for command in part.commands))
    if any(code is None for code in codes):
        return LATE
    return FAILED if any(codes) else DONE


async def _command(command: Sequence[str], limit: float, heard: _Heard) -> int | None:
    """Exit status; None when it had to be stopped."""
    environ = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    with contextlib.ExitStack() as files:
        printed = asyncio.subprocess.PIPE if heard.answer is None else files.enter_context(heard.answer.open("wb"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, stdout=printed,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT, env=environ, start_new_session=True,
        )  # fmt: skip
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    readers = [asyncio.create_task(_read(stream, heard)) for stream in streams]
    try:
        async with asyncio.timeout(limit):
            await process.wait()
            await asyncio.wait(readers)
        return process.returncode
    except TimeoutError:
        heard.stopped(f"stopped after {limit:.0f} s")
        return None
    finally:
        await _stopped(process)
        for reader in readers:
            reader.cancel()


async def _stopped(process: asyncio.subprocess.Process) -> None:
    """Ctrl-C first, so that services are drained; then the whole group is killed."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


async def _read(stream: asyncio.StreamReader, heard: _Heard) -> None:
    """Line by line, also those that are drawn over each other."""
    rest = ""
    while piece := await stream.read(1 << 16):
        *lines, rest = (rest + piece.decode(errors="replace")).replace("\r", "\n").split("\n")
        for line in lines:
            heard.line(line)
    heard.line(rest)
