"""For all tests: one thread to an engine, here and in child processes. The layers are too small to
share, and waiting costs more. No caller is refused because several tests share the machine's cores.
Without a GPU, Triton's kernels are interpreted; it wants to know before it is imported."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT", "off")
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
