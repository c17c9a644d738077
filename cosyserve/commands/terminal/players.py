"""Plays sound while it arrives, by a pipe into an audio player of the system."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cosyserve.audio.wav import WavWriter, wav_header


class PlayerError(Exception):
    """There is no player, or it failed; the message says which and what to do."""


@dataclass(frozen=True)
class Program:
    """An audio player."""

    name: str
    takes: str
    """Its input: `raw` (s16le, mono) or `wav` on standard input, or a complete `file` as its last
    argument.
    """
    command: Callable[[int], Sequence[str]]
    """Its arguments for a sample rate."""


PROGRAMS = (
    Program("pw-play", "wav", lambda rate: ("-",)),
    Program("paplay", "raw", lambda rate: ("--raw", f"--rate={rate}", "--channels=1", "--format=s16le")),
    Program("aplay", "raw", lambda rate: ("-q", "-t", "raw", "-f", "S16_LE", "-r", str(rate), "-c", "1", "-")),
    Program("ffplay", "wav", lambda rate: ("-nodisp", "-autoexit", "-loglevel", "error", "-i", "-")),
    Program("afplay", "file", lambda rate: ()),
    Program(
        "play", "raw", lambda rate: ("-q", "-t", "raw", "-r", str(rate), "-e", "signed", "-b", "16", "-c", "1", "-")
    ),
)
"""PipeWire, PulseAudio, ALSA, FFmpeg, macOS, SoX: the first installed one is used."""


def installed_player() -> Program:
    """The first of PROGRAMS that is installed. Raises NoPlayer."""
    for program in PROGRAMS:
        if shutil.which(program.name):
            return program
    names = ", ".join(program.name for program in PROGRAMS)
    raise PlayerError(f"--play: no player is installed; looked for {names}. Install one, or write a file: -o out.wav")


class Player:
    """One run of a player; use it as an async context manager. If the block ends without an error,
    everything was played.
    """

    def __init__(self, program: Program, rate: int) -> None:
        self._program, self._rate = program, rate
        self._process: asyncio.subprocess.Process | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._file: WavWriter | None = None

    async def play(self, pcm: bytes) -> None:
        """Play s16le samples; waits while the player is behind. Raises PlayerError if it
        has ended.
        """
        if self._program.takes == "file":
            await asyncio.to_thread(self._keep, pcm)
            return
        try:
            if self._process is None:
                self._process = await self._start(self._program.command(self._rate))
                if self._program.takes == "wav":
                    await self._write(wav_header(self._rate, None))
            await self._write(pcm)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PlayerError(
                await self._failure() or f"--play: {self._program.name} ended before the speech did"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._finish()
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            if self._file is not None:
                self._file.close()
            if self._folder is not None:
                self._folder.cleanup()

    async def _finish(self) -> None:
        """Wait until all samples are played."""
        if self._file is not None and self._folder is not None:
            self._file.close()
            self._file = None
            self._process = await self._start(
                (*self._program.command(self._rate), str(Path(self._folder.name) / "speech.wav"))
            )
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await self._process.stdin.wait_closed()
        if failure := await self._failure():
            raise PlayerError(failure)

    async def _failure(self) -> str:
        """The error of the program, empty if it succeeded. Reads all its output, so that it never
        blocks on that.
        """
        if self._process is None or self._process.stderr is None:
            return ""
        said = (await self._process.stderr.read()).decode(errors="replace").strip().splitlines()
        if not (status := await self._process.wait()):
            return ""
        return ": ".join([f"--play: {self._program.name} ended with status {status}", *said[-1:]])

    async def _start(self, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        given = null if self._program.takes == "file" else pipe
        return await asyncio.create_subprocess_exec(
            self._program.name, *arguments, stdin=given, stdout=null, stderr=pipe
        )

    async def _write(self, content: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(content)
            await self._process.stdin.drain()

    def _keep(self, pcm: bytes) -> None:
        if self._file is None:
            self._folder = tempfile.TemporaryDirectory()
            self._file = WavWriter(Path(self._folder.name) / "speech.wav", self._rate)
        self._file.write(pcm)
