"""Output of a command: its audio, its progress, and its result. Standard input is read, and
standard output written, on daemon threads, which do not delay the exit of the process.
"""

import argparse
import asyncio
import codecs
import concurrent.futures
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, TypeVar

from cosyserve.audio.compressed import EncodedFile, FileFormat, is_installed
from cosyserve.audio.encoding import Encoding
from cosyserve.audio.wav import WavWriter
from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.connection_arguments import api_key, client_tls
from cosyserve.commands.terminal.output import FAILED, WrongUsage, print_json, report_failure
from cosyserve.commands.terminal.players import Player, PlayerError, installed_player
from cosyserve.errors import DeadlineExceeded
from cosyserve.load.player import Heard, Play

WAV_ENDINGS = (".wav", ".wave", "")
"""Endings of WAV files, in lower case."""
COMPRESSED = {
    ".mp3": FileFormat.MP3,
    ".opus": FileFormat.OPUS,
    ".ogg": FileFormat.OPUS,
    ".aac": FileFormat.AAC,
    ".flac": FileFormat.FLAC,
}
_STREAM = "-"
T = TypeVar("T")
_MOST_BYTES = 4_096


def check_output(
    output: str | None, compressed: Mapping[str, FileFormat] = MappingProxyType({}), *, encodes: bool = True
) -> None:
    """Check, before any work, that a file of this name can be written; None and - need no file.
    compressed: endings that are allowed besides those of WAV files. encodes: whether they are
    encoded here. Raises WrongUsage for the ending of another format, OSError with the reason for
    all else. Creates nothing.
    """
    if output is None or output == _STREAM:
        return
    path = Path(output)
    ending = path.suffix.lower()
    if ending not in (*WAV_ENDINGS, *compressed):
        also = f"; {', '.join(compressed)}" if compressed else ""
        raise WrongUsage(
            f"{output}: no encoder writes {path.suffix}; endings that work: .wav, .wave, or none (each a WAV file)"
            f"{also}, and - for raw audio"
        )
    if encodes and ending in compressed and not is_installed():
        raise WrongUsage(
            f"{output}: {ending} needs the extra audio: pip install 'cosyserve[audio]'; or have the server encode: "
            f"--encoding {compressed[ending]}"
        )
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(0, f"cannot be written, {folder} is no directory", output)
    if path.is_dir():
        raise IsADirectoryError(0, "cannot be written, it is a directory", output)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise PermissionError(
            0, f"cannot be written, no permission to write {'it' if path.exists() else f'in {folder}'}", output
        )


async def deliver(arguments: argparse.Namespace, speak: Callable[[AsyncClient, Play], Awaitable[Heard]]) -> int:
    """Write the audio of `speak` to --output, play it with --play, and print the timings; returns
    the exit code.

    Raises OSError for a file that cannot be written, DeadlineExceeded when --timeout is over, and
    Unavailable without a server.
    """
    to_stderr = arguments.output == _STREAM
    try:
        player = Player(installed_player(), arguments.rate) if arguments.play else None
        out = _Output(arguments, player)
        async with asyncio.timeout(arguments.timeout) as time_given, contextlib.AsyncExitStack() as exits:
            exits.callback(out.close)
            client = await exits.enter_async_context(
                AsyncClient(arguments.server, api_key(arguments), tls=client_tls(arguments))
            )
            await client.connect(arguments.timeout)
            if player is not None:
                await exits.enter_async_context(player)
            heard = await speak(client, out.play)
    except PlayerError as error:
        return report_failure("", str(error), FAILED, as_json=arguments.json, to_stderr=to_stderr)
    except TimeoutError as error:
        if not time_given.expired():
            raise
        raise DeadlineExceeded(
            f"server at {arguments.server}: not over within the {arguments.timeout:g} s of --timeout"
        ) from error
    for warning in heard.summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if arguments.json:
        print_json(heard.as_dict() | {"output": arguments.output}, to_stderr=to_stderr)
    else:
        print(f"{arguments.output or 'played'}: {heard}", file=sys.stderr if to_stderr else sys.stdout)
    return 0


class _Output:
    """Destination of the audio. A file is created with the first sound, so that a refused request
    leaves none.
    """

    def __init__(self, arguments: argparse.Namespace, player: Player | None) -> None:
        self._arguments = arguments
        self._player = player
        self._file: WavWriter | EncodedFile | BinaryIO | None = None
        self._bytes = 0
        self._shown = sys.stderr.isatty()

    async def play(self, audio: bytes) -> None:
        if self._arguments.output == _STREAM:
            # A reader that reads nothing must not block a command whose time is over.
            await write_bytes(sys.stdout.fileno(), audio)
        elif self._arguments.output is not None:
            await asyncio.to_thread(self._write, audio)
        self._bytes += len(audio)
        encoding = self._arguments.encoding
        if isinstance(encoding, Encoding):
            self._show(f"{self._bytes / encoding.bytes_per_sample / self._arguments.rate:.1f} s of audio ...")
        else:
            self._show(f"{self._bytes / 1000:.0f} kB of {encoding} ...")
        if self._player is not None:
            await self._player.play(audio)

    def close(self) -> None:
        self._show("")
        if self._file is not None:
            self._file.close()

    def _show(self, text: str) -> None:
        """On a terminal only: print a line that the next one replaces."""
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def _write(self, audio: bytes) -> None:
        if self._file is None:
            self._file = self._opened(Path(self._arguments.output), self._arguments.rate)
        self._file.write(audio)

    def _opened(self, path: Path, rate: int) -> WavWriter | EncodedFile | BinaryIO:
        if not isinstance(self._arguments.encoding, Encoding):
            return path.open("wb")  # the server encodes
        compressed = COMPRESSED.get(path.suffix.lower())
        if compressed is None:
            return WavWriter(path, rate, self._arguments.encoding)
        return EncodedFile(path, compressed, rate)


async def _run_in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """Run `work` on a daemon thread and return its result. Cancelling this abandons the thread, so
    `work` must hold no lock that the interpreter takes at exit.
    """
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # from here on only the thread ends it

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return await asyncio.wrap_future(done)


async def read_text(descriptor: int) -> AsyncIterator[str]:
    """Text from `descriptor` (UTF-8; invalid bytes become U+FFFD) as it arrives, until its end.
    Raises OSError if it cannot be read.

    The reading thread is a daemon: exiting does not wait for input that never comes.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while piece := await _run_in_daemon_thread(lambda: os.read(descriptor, _MOST_BYTES), "read_text"):
        if text := decode(piece):
            yield text
    if text := decode(b"", final=True):
        yield text


async def write_bytes(descriptor: int, content: bytes) -> None:
    """Write all of `content`. Bypasses the buffer of Python, because an abandoned thread would keep
    its lock from the interpreter.
    """

    def write() -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    await _run_in_daemon_thread(write, "write_bytes")
