"""For all tests: one thread to an engine, here and in child processes. The layers are too small to share, and waiting costs more."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
