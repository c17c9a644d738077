"""`cosyserve start` with the bundled voice: it measures, it serves, and what cannot run is said."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from cosyserve.client import AsyncClient
from tests.stacks.up_process import ROOT

FAKES = {"COSYSERVE_LLM_BACKEND": "fake", "COSYSERVE_TOKEN2WAV_BACKEND": "fake"}


def start(tmp_path: Path, *options: str, **environ: str) -> Any:
    """The command as a process, with pipes."""
    command = [
        sys.executable,
        "-m",
        "cosyserve",
        "start",
        "--http",
        "off",
        "--listen",
        "127.0.0.1:0",
        "--voices",
        str(tmp_path / "voices"),
        *options,
    ]
    environment = {
        **os.environ,
        "COSYSERVE_TOKEN2WAV_ENGINES": str(tmp_path / "engines"),
        "PATH": str(tmp_path),
        **environ,
    }
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_it_measures_then_serves(tmp_path: Path) -> None:
    process = start(tmp_path, "--benchmark")
    lines: list[str] = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.startswith("ready: "):
                break
        assert any(line.startswith("not compile+fp16: there is no NVIDIA GPU") for line in lines)
        assert next(line for line in lines if line.startswith("cpu ")).split()[-1] in ("fast", "acceptable", "slow")
        assert "  COSYSERVE_TOKEN2WAV_DEVICE=cpu" in lines
        assert len(asyncio.run(speak(lines[-1].split()[1]))) > 24_000
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        process.communicate()


async def speak(address: str) -> bytes:
    async with AsyncClient(address) as client:
        return await client.synthesize("Hello.", seed=3).read()


def test_engines_that_are_missing_are_a_row_with_the_command(tmp_path: Path) -> None:
    process = start(tmp_path, "--force-config", "onnx", "--benchmark")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    row = next(line for line in output.splitlines() if line.startswith("onnx "))
    assert "not run" in row
    assert "cosyserve model export" in row


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--force-config", "trt+fp16"), "--force-config trt+fp16: there is no NVIDIA GPU"),
        (("--test-all", "--force-config", "cpu"), "give one of them"),
        (("--strict",), "--strict: compile+fp16 cannot run: there is no NVIDIA GPU"),
    ],
)
def test_what_cannot_be_asked_for(options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    process = start(tmp_path, *options)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, told in errors) == (2, True)


def test_sigterm_while_it_measures_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start(tmp_path, "--benchmark", **FAKES)
    for line in process.stdout:
        if "serving after" in line:
            break
    started = psutil.Process(process.pid).children(recursive=True)
    assert started
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, "stopped" in output) == (130, True)
    _, alive = psutil.wait_procs(started, timeout=30)
    assert alive == []


def test_nothing_is_served_where_nobody_asks(tmp_path: Path) -> None:
    process = start(tmp_path, "--no-serve")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "configuration cpu: PyTorch on the CPU" in output
