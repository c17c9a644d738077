"""Stands in for nvidia-cuda-mps-control: a daemon that is a sleeping process, its pid where the
real one leaves it.

FAKE_MPS says how it behaves: starts, refuses, hangs, stubborn (does not come back from quit), deaf
(does, and lives on).
"""

import stat
import sys
from pathlib import Path

_PROGRAM = """#!{python}
import os, signal, subprocess, sys, time
from pathlib import Path

pipes, way = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")), os.environ.get("FAKE_MPS", "starts")
pid_file = pipes / "nvidia-cuda-mps-control.pid"
with Path(os.environ["FAKE_MPS_CALLS"]).open("a") as calls:
    word = " ".join(sys.argv[1:]) or sys.stdin.readline().strip()
    calls.write(word + "|" + os.environ.get("CUDA_VISIBLE_DEVICES", "") + "|" + str(pipes) + "\\n")
if sys.argv[1:] == ["-d"]:
    if way == "refuses":
        sys.exit("Cannot create the control pipe: permission denied")
    if way == "hangs":
        time.sleep(600)
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pid_file.write_text(str(daemon.pid))
    (pipes / "control").touch()
    sys.exit(0)
try:
    pid = int(pid_file.read_text())
    os.kill(pid, 0)
except (OSError, ValueError):
    sys.exit("Cannot find MPS control daemon process")
if word.startswith("quit"):
    if way == "stubborn":
        time.sleep(600)
    if way == "deaf":
        sys.exit(0)
    os.kill(pid, signal.SIGTERM)
"""


def put_program(directory: Path) -> None:
    """Lay the program into `directory`, which has to come first in PATH."""
    program = directory / "nvidia-cuda-mps-control"
    program.write_text(_PROGRAM.replace("{python}", sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
