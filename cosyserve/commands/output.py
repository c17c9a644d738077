"""Where a command's audio goes, and what it says when the audio is over."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from cosyserve.client import Client
from cosyserve.commands.hearing import Heard, Play
from cosyserve.wav import WavWriter


async def deliver(arguments: argparse.Namespace, speak: Callable[[Client, Play], Awaitable[Heard]]) -> int:
    """Play what `speak` makes into --output and say what it cost; returns the exit code."""
    out = _Output(arguments)
    try:
        async with Client(arguments.server) as client:
            heard = await speak(client, out.play)
    except BrokenPipeError:
        # Whoever listened has heard enough. Python would meet the broken pipe again when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        out.close()
    for warning in heard.summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    line = json.dumps(heard.as_dict() | {"output": arguments.output}) if arguments.json else f"{arguments.output}: {heard}"
    print(line, file=sys.stderr if arguments.output == "-" else sys.stdout)
    return 0


class _Output:
    """Where the audio goes. A file comes into being with the first sound, so that a refused request leaves none."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._file: WavWriter | None = None

    async def play(self, audio: bytes) -> None:
        await asyncio.to_thread(self._write, audio)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, audio: bytes) -> None:
        if self._arguments.output == "-":
            sys.stdout.buffer.write(audio)
            sys.stdout.buffer.flush()
            return
        if self._file is None:
            self._file = WavWriter(Path(self._arguments.output), self._arguments.rate, self._arguments.encoding)
        self._file.write(audio)
