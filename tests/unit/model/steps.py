"""What the tests of the model commands share: the models, `cosyserve model` as a process, a file
that is damaged.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, MASKED

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


def as_published(converted: Path, to: Path, *, unused_rows: int = 0) -> Path:
    """A Hugging Face directory of ours as others make one: the bias among the weights, -inf where
    there is no token, no files of ours. unused_rows: so many of the head hold other numbers.
    """
    shutil.copytree(converted, to, ignore=shutil.ignore_patterns("cosyserve", "manifest.json"))
    given = load_file(to / "model.safetensors")
    bias = load_file(converted / HEAD_BIAS_FILE)["head_bias"]
    given["lm_head.bias"] = np.where(bias == MASKED, np.float32(-np.inf), bias)
    given["lm_head.weight"][:unused_rows] = 0.5
    save_file(given, to / "model.safetensors", {"format": "pt"})
    return to


def damage(path: Path) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as stream:
        stream.seek(50_000)
        stream.write(b"?")
