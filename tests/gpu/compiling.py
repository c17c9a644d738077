"""Kernels of the small models, compiled side by side before the tests: `python -m
tests.gpu.compiling NAME` loads one engine and ends.

One process compiles for most of a minute; the tests have so many engines that one after the other
would take several.
"""

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.stacks.up_process import DEMO, ROOT, STEP_AUDIO2, TINY, TINY3

CACHE = "COSYSERVE_CACHE_DIR"
LONGEST_SECONDS = 240.0
SMALL_POOL = {"state_bytes": 1 << 29, "prompt_cache_bytes": 1 << 28}


def environment(**more: str) -> dict[str, str]:
    """This process's, with the repository before what its PYTHONPATH names already: packages may
    lie there.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        **more,
    }


def llm(model: str, precision: str, sequences: int) -> None:
    """Fused steps of every bucket that so many sequences have."""
    from services.llm.backends.torch_backend import TorchBackend
    from tests.unit.llm.tiny_llm import settings

    wanted = settings(device="cuda", gpu_engine="fused", gpu_precision=precision, max_sequences=sequences)
    # As `cosyserve start` has it: the tables' sizes are compiled into the kernels.
    wanted = dataclasses.replace(wanted, model=DEMO, max_positions=8192) if model == "demo" else wanted
    asyncio.run(TorchBackend.load(wanted).close())


def token2wav(model: str, precision: str, vocoder: str, kept: str = "operands") -> None:
    """The paged flow, and the windowed vocoder with it."""
    from services.token2wav.decoders.backend import EngineSettings
    from services.token2wav.loading import load_backend

    path = {"demo": DEMO, "tiny": TINY, "tiny3": TINY3, "tiny-stepaudio2": TINY}[model]
    engine = EngineSettings(
        model=path, device="cuda", gpu_engine="paged", gpu_precision=precision, gpu_vocoder=vocoder,
        gpu_kv_precision=kept, decoder_model=STEP_AUDIO2 if model == STEP_AUDIO2.name else None, **SMALL_POOL,
    )  # fmt: skip
    load_backend("torch", engine)


LOADS: Mapping[str, Callable[[], None]] = {
    # Those that take longest first. With the readable vocoder the flow is compiled while the other
    # process is at the windowed one.
    "token2wav demo bfloat16 windowed": lambda: token2wav("demo", "bfloat16", "windowed"),
    "token2wav demo bfloat16 readable": lambda: token2wav("demo", "bfloat16", "readable"),
    "token2wav tiny bfloat16 windowed": lambda: token2wav("tiny", "bfloat16", "windowed"),
    "token2wav tiny bfloat16 readable": lambda: token2wav("tiny", "bfloat16", "readable"),
    "token2wav tiny float32 windowed": lambda: token2wav("tiny", "float32", "windowed"),
    "token2wav tiny float32 readable": lambda: token2wav("tiny", "float32", "readable"),
    "token2wav tiny3 bfloat16 windowed": lambda: token2wav("tiny3", "bfloat16", "windowed"),
    "token2wav tiny3 float32 windowed": lambda: token2wav("tiny3", "float32", "windowed"),
    "token2wav tiny3 bfloat16 readable": lambda: token2wav("tiny3", "bfloat16", "readable"),
    "token2wav tiny3 float32 readable": lambda: token2wav("tiny3", "float32", "readable"),
    "token2wav tiny-stepaudio2 bfloat16 windowed": lambda: token2wav("tiny-stepaudio2", "bfloat16", "windowed"),
    "token2wav tiny-stepaudio2 float32 windowed": lambda: token2wav("tiny-stepaudio2", "float32", "windowed"),
    "token2wav tiny-stepaudio2 bfloat16 readable": lambda: token2wav("tiny-stepaudio2", "bfloat16", "readable"),
    "token2wav tiny-stepaudio2 float32 readable": lambda: token2wav("tiny-stepaudio2", "float32", "readable"),
    "token2wav tiny bfloat16 readable int8": lambda: token2wav("tiny", "bfloat16", "readable", "int8"),
    "token2wav tiny bfloat16 readable float8": lambda: token2wav("tiny", "bfloat16", "readable", "float8"),
    "token2wav tiny3 bfloat16 readable int8": lambda: token2wav("tiny3", "bfloat16", "readable", "int8"),
    "token2wav tiny3 bfloat16 readable float8": lambda: token2wav("tiny3", "bfloat16", "readable", "float8"),
    "token2wav tiny-stepaudio2 bfloat16 readable int8": lambda: token2wav(
        "tiny-stepaudio2", "bfloat16", "readable", "int8"
    ),
    "token2wav tiny-stepaudio2 bfloat16 readable float8": lambda: token2wav(
        "tiny-stepaudio2", "bfloat16", "readable", "float8"
    ),
    "llm demo bfloat16": lambda: llm("demo", "bfloat16", 64),
    "llm tiny bfloat16": lambda: llm("tiny", "bfloat16", 16),
    "llm tiny float32": lambda: llm("tiny", "float32", 16),
}
"""Every engine with kernels of our own that a test loads."""


def compile_all(
    tell: Callable[[str], None], names: Sequence[str] = tuple(LOADS), limit: float = LONGEST_SECONDS
) -> list[str]:
    """A process for each name, as many at a time as there are cores. Returns the names of those
    that failed or took longer than `limit` seconds; it is left to the tests to complain."""
    began, failed = time.monotonic(), []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = {pool.submit(_compiled, name, limit): name for name in names}
        for done, future in enumerate(as_completed(running), start=1):
            name, why = running[future], future.result()
            tell(
                f"kernels: {done} of {len(names)} engines after {time.monotonic() - began:.0f} s, "
                f"{name}{': ' + why if why else ''}"
            )
            failed += [name] if why else []
    return failed


def _compiled(name: str, limit: float) -> str:
    """What went wrong; empty when nothing did."""
    command = [sys.executable, "-m", "tests.gpu.compiling", name]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {limit:.0f} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]


if __name__ == "__main__":
    LOADS[sys.argv[1]]()
