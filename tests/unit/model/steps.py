"""What the tests of the model commands share: the models, `cosyserve model` as a process, a file
that is damaged.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TINY, DEMO = ROOT / "tests" / "golden" / "tiny", ROOT / "models" / "demo"


def step(*words: str) -> dict[str, Any]:
    """Arguments of `subprocess`, for `cosyserve model` with these words."""
    command = [sys.executable, "-m", "cosyserve", "model", *words]
    return {"args": command, "env": {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}, "text": True}


def ended(*words: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Status, output and errors of such a process after its end."""
    done = subprocess.run(**step(*words), cwd=cwd, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def damage(path: Path) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as stream:
        stream.seek(50_000)
        stream.write(b"?")
