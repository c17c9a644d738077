"""`cosyserve up` as a process of its own, with the fake engines."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY, TINY3 = ROOT / "tests" / "golden" / "tiny", ROOT / "tests" / "golden" / "tiny3"
STEP_AUDIO2 = ROOT / "tests" / "golden" / "tiny-stepaudio2"
DEMO = ROOT / "models" / "demo"


class Up:
    """A running `cosyserve up`; `lines` is everything it has printed."""

    def __init__(self, *options: str, environ: dict[str, str] | None = None) -> None:
        # A test neither sees nor changes the voices of the user.
        ours = {"COSYSERVE_FRONTEND_VOICES_URL": str(Path(tempfile.gettempdir()) / f"no-voices-{os.getpid()}")}
        command = [
            sys.executable,
            "-m",
            "cosyserve",
            "up",
            "--model",
            str(TINY),
            "--backend",
            "fake",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "off",
            *options,
        ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **ours, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def address(self) -> str:
        """host:port of the public door, once it is ready."""
        return self.line_with("ready: ").split()[1]

    def line_with(self, text: str, seconds: float = 120) -> str:
        """The first line that holds `text`, as soon as it is printed."""
        with self._news:
            assert self._news.wait_for(lambda: self._over or self._find(text), seconds), f"no {text!r} in {self.lines}"
            line = self._find(text)
        assert line, f"it ended without {text!r}: {self.lines}"
        return line

    def end(self, number: signal.Signals = signal.SIGINT, seconds: float = 60) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def _find(self, text: str) -> str | None:
        return next((line for line in self.lines if text in line), None)

    def _read(self) -> None:
        with self.process.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line.rstrip())
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()


def run_service(service: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run `python -m services.SERVICE` to its end, with these settings and no others."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COSYSERVE_")}
    given = {f"COSYSERVE_{service.upper()}_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", f"services.{service}"]
    return subprocess.run(command, cwd=ROOT, env=plain | given, capture_output=True, text=True, timeout=120)


def run_cosyserve(*arguments: str, seconds: float = 180, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end. environ: besides the variables of this process."""
    return subprocess.run(
        [sys.executable, "-m", "cosyserve", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
