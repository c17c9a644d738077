"""`python -m cosyserve.host.supervision.mps_keeper PROGRAM`: runs an MPS daemon that cannot outlive
the parent of this process.

Prints one line of JSON: {"pipes": DIRECTORY} when the daemon accepts clients, else {"failed":
REASON}. Then it waits until its standard input ends, which is when the parent closes it or has
ended, and ends the daemon; if the daemon ends first, this process exits with status 1. Pipes, logs
and their directory are private to the user and deleted with the daemon.

PROGRAM is nvidia-cuda-mps-control. Source: its manual page (`-d`, `quit -t`).
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 10.0
QUIT_SECONDS = 3
"""Seconds that clients may delay the end of the daemon; they have ended before, or end with the
parent.
"""
_MARGIN_SECONDS = 5.0
_PID_FILE = "nvidia-cuda-mps-control.pid"


class _Refused(Exception):
    """The daemon does not run; the message says why."""


class _Daemon:
    """A daemon with pipes and logs in `directory`. Raises _Refused."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program, self.pipes, logs = program, directory / "pipes", directory / "logs"
        self._said = directory / "said"
        self.pipes.mkdir()
        logs.mkdir()
        directories = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        # A daemon with visible devices renumbers them for its clients, whose own choice must count
        # all devices.
        self._environ = {
            name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"
        } | directories
        try:
            code = self._call("-d", text="", seconds=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            raise _Refused(f"{program} -d did not come back within {START_SECONDS:g} s") from None
        except OSError as error:
            raise _Refused(f"{program} cannot be run: {error.strerror}") from error
        if code != 0:
            raise _Refused(
                f"{program} -d ended with status {code}{_last_line(self._said) or _last_line(logs / 'control.log')}"
            )

    def until_over(self, descriptor: int) -> bool:
        """Wait until `descriptor` or the daemon has ended; True for the former."""
        with _handle(self._pid()) as handles:
            watched = [descriptor, *handles]
            while True:
                ready, _, _ = select.select(watched, [], [])
                if descriptor not in ready:
                    return False
                if not os.read(descriptor, 4096):
                    return True

    def end(self) -> None:
        """End the servers of the daemon and the daemon; kill it if it does not end."""
        pid = self._pid()
        gone = False
        with _handle(pid) as handles, contextlib.suppress(OSError, subprocess.TimeoutExpired):
            asked = self._call(text=f"quit -t {QUIT_SECONDS}\n", seconds=QUIT_SECONDS + _MARGIN_SECONDS) == 0
            gone = asked and (not handles or bool(select.select(handles, [], [], _MARGIN_SECONDS)[0]))
        if pid is not None and not gone:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _call(self, *options: str, text: str, seconds: float) -> int:
        # Its output goes to a file: this call would wait for a daemon that kept a pipe open.
        with self._said.open("wb") as output:
            done = subprocess.run(
                (self._program, *options),
                input=text.encode(),
                stdout=output,
                stderr=output,
                env=self._environ,
                timeout=seconds,
                check=False,
            )
        return done.returncode

    def _pid(self) -> int | None:
        try:
            return int((self.pipes / _PID_FILE).read_text())
        except (OSError, ValueError):
            return None


@contextlib.contextmanager
def _handle(pid: int | None) -> Iterator[list[int]]:
    """A descriptor that becomes readable when the process has ended; none without such a process or
    without pidfd_open.
    """
    try:
        handles = [] if pid is None else [os.pidfd_open(pid)]
    except OSError:
        handles = []
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def _last_line(file: Path) -> str:
    try:
        lines = file.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1].strip()}" if lines else ""


def _print(**line: str) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(program: str) -> int:
    """Returns the exit status: 0 if the parent ended the daemon, 1 if the daemon ended or did not
    start.
    """
    with tempfile.TemporaryDirectory(prefix="cosyserve-mps-", ignore_cleanup_errors=True) as directory:
        try:
            daemon = _Daemon(program, Path(directory))
        except _Refused as error:
            _print(failed=str(error))
            return 1
        wanted = True
        try:
            _print(pipes=str(daemon.pipes))
            wanted = daemon.until_over(sys.stdin.fileno())
        finally:
            daemon.end()
    return 0 if wanted else 1


if __name__ == "__main__":
    # A signal to the process group is meant for the deployment, which drains first: its engines
    # need the daemon until our input is closed.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # a handler, not SIG_IGN, which the daemon would inherit
        signal.signal(number, lambda *_: None)
    sys.exit(main(sys.argv[1]))
