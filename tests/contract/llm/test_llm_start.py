"""`python -m services.llm` that cannot serve prints the reason in one line and exits with a status
of its own.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import torch

from cosyserve.v1 import llm_pb2_grpc
from services.llm.engine.scheduler import Scheduler
from tests.contract.llm.llm_service import generate, started
from tests.stacks.calls import refusal
from tests.unit.llm.tiny_llm import TINY

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of the reduced model."""
    left_out = shutil.ignore_patterns("*.npz", "flow.pt", "hift.pt")
    return Path(shutil.copytree(TINY, tmp_path / "bundle", ignore=left_out))


def start(**environment: str) -> tuple[int, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COSYSERVE_")}
    given = {f"COSYSERVE_LLM_{name}": value for name, value in environment.items()}
    ended = subprocess.run(
        [sys.executable, "-m", "services.llm"], cwd=ROOT, env=plain | given, capture_output=True, text=True, timeout=60
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "COSYSERVE_LLM_LISTEN is not set and has no default\n"),
        ({"LISTEN": "127.0.0.1:0"}, "COSYSERVE_LLM_*: model is not set and backend=auto needs it\n"),
    ],
)
def test_unusable_settings_end_with_2(environment: dict[str, str], message: str) -> None:
    assert start(**environment) == (2, message)


def test_a_step_down_that_is_refused_ends_with_2() -> None:
    status, said = start(LISTEN="127.0.0.1:0", MODEL=str(TINY), STRICT="true", LOG_LEVEL="ERROR")
    assert (status, said.count("\n")) == (2, 1)
    assert said.startswith("COSYSERVE_LLM_STRICT is true and fused cannot serve: ")


def test_an_unusable_model_ends_with_3(bundle: Path) -> None:
    (bundle / "llm.pt").write_bytes(b"\x80\x04 no tensors here")
    status, said = start(LISTEN="127.0.0.1:0", MODEL=str(bundle), LOG_LEVEL="ERROR")
    assert status == 3
    assert said.startswith(f"{bundle}/llm.pt: not a file of tensors (")
    assert said.count("\n") == 1


def test_a_model_that_cannot_speak_ends_with_3(bundle: Path) -> None:
    tensors = torch.load(bundle / "llm.pt", weights_only=True)
    tensors["llm.model.model.norm.weight"] = torch.full((64,), torch.finfo(torch.float32).max)
    torch.save(tensors, bundle / "llm.pt")
    status, said = start(LISTEN="127.0.0.1:0", MODEL=str(bundle), LOG_LEVEL="ERROR")
    why = "the speech-token model produced non-finite log-probabilities at token 0"
    assert (status, said) == (3, f"{bundle}: the engine cannot speak its first sentence: {why}\n")


def test_the_fake_backend_needs_no_tensor_library() -> None:
    check = "import sys, services.llm.__main__, services.llm.backends.fake_backend; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, timeout=60).returncode == 0


async def test_an_engine_that_breaks_ends_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: Scheduler) -> None:
        raise KeyError("policy")

    async with started() as (service, channel):
        monkeypatch.setattr(Scheduler, "next", breaks)
        error = await refusal(generate(llm_pb2_grpc.LlmServiceStub(channel)), grpc.StatusCode.INTERNAL)
        assert await asyncio.wait_for(service.over, 20) == error.details()
