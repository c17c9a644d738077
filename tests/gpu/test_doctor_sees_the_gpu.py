"""`cosyserve doctor` on the machine as it is: the driver, the GPU and its memory are those that
torch finds, and the settings suit it.
"""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from cosyserve.host.recommendation import TIERS
from tests.gpu.compiling import environment
from tests.stacks.up_process import run_cosyserve

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi"),
]
LOADED = Path("/proc/driver/nvidia/version")
"""What the kernel says of its driver."""
ABOUT_A_GPU = ("driver", "cuda", "GPU 0", "torch build")


def doctor(*options: str) -> "subprocess.CompletedProcess[str]":
    return run_cosyserve("doctor", "--gpu", "--listen", "127.0.0.1:0", *options, seconds=120, **environment())


@cache
def report() -> tuple[int, dict[str, Any]]:
    done = doctor("--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_gpu_is_the_one_that_torch_uses() -> None:
    _, found = report()
    properties = torch.cuda.get_device_properties(0)
    same = [gpu for gpu in found["machine"]["gpus"] if gpu["name"] == properties.name]
    assert same, found["machine"]["gpus"]
    assert tuple(same[0]["capability"]) == (properties.major, properties.minor)
    assert same[0]["memory_mib"] == pytest.approx(properties.total_memory / 2**20, rel=0.05)
    if LOADED.exists():
        assert same[0]["driver"] in LOADED.read_text()
    assert found["machine"]["cuda"]


def test_nothing_is_wrong_with_it_and_the_exit_status_says_so() -> None:
    code, found = report()
    states = {finding["check"]: (finding["state"], finding["found"]) for finding in found["findings"]}
    print(*(f"{state:8} {check}: {what}" for check, (state, what) in states.items()), sep="\n")
    for check in ABOUT_A_GPU:
        assert states[check][0] != "problem", states[check]
    assert states["driver"][0] == "ok"
    problems = [check for check, (state, _) in states.items() if state == "problem"]
    assert (code, found["healthy"]) == (int(bool(problems)), not problems), problems


def test_the_settings_are_those_of_its_memory() -> None:
    _, found = report()
    memory = found["machine"]["gpus"][0]["memory_mib"]
    tier = next(tier for tier in TIERS if memory >= tier.at_least)
    if memory >= 40 << 10:
        assert tier.name.startswith("data-centre")
    assert found["recommendation"]["tier"] == tier.name
    environ = found["recommendation"]["environ"]
    assert environ["COSYSERVE_TOKEN2WAV_DEVICE"] == "cuda"
    assert sum(int(environ[f"COSYSERVE_TOKEN2WAV_{name}_BYTES"]) for name in ("STATE", "PROMPT_CACHE")) < memory << 20
    text = doctor().stdout
    assert f"settings for this machine: {tier.name}" in text
    assert f"COSYSERVE_TOKEN2WAV_STATE_BYTES={environ['COSYSERVE_TOKEN2WAV_STATE_BYTES']}" in text
