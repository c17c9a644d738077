"""A service that cannot serve prints the reason in one line and exits with a status of its own: 2
for settings, 3 for a model directory.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from cosyserve.v1 import llm_pb2_grpc
from services.llm.engine.scheduler import Scheduler
from tests.contract.llm.llm_service import generate, started
from tests.stacks.calls import refusal
from tests.stacks.up_process import DEMO, ROOT, TINY, run_service


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of the reduced model."""
    left_out = shutil.ignore_patterns("*.npz", "flow.pt", "hift.pt")
    return Path(shutil.copytree(TINY, tmp_path / "bundle", ignore=left_out))


def start(**environment: str) -> tuple[int, str]:
    ended = run_service("llm", **environment)
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
    assert (status, said.count("\n")) == (3, 1)
    assert said.startswith(f"{bundle}/llm.pt: not a file of tensors (")


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


def rewritten(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Changes the tensors of a file."""

    def change(path: Path) -> None:
        tensors = torch.load(path, weights_only=True)
        edit(tensors)
        torch.save(tensors, path)

    return change


def without(key: str) -> Callable[[Path], None]:
    return rewritten(lambda tensors: tensors.pop(key))


def misshapen(key: str) -> Callable[[Path], None]:
    return rewritten(lambda tensors: tensors.update({key: tensors[key][:-1].clone()}))


def text(addition: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(path.read_text(encoding="utf-8") + addition, encoding="utf-8") and None


HOSTILE = "boom: !!python/object/apply:os.system ['touch hacked']\n"


@pytest.mark.parametrize(
    ("service", "file", "change", "words"),
    [
        ("llm", "llm.pt", without("llm_decoder.bias"), "missing tensor llm_decoder.bias [6564]"),
        ("llm", "llm.pt", misshapen("speech_embedding.weight"), "tensor speech_embedding.weight has shape [6563, "),
        ("llm", "cosyvoice2.yaml", text(HOSTILE), "!!python/object/apply:os.system"),
        ("token2wav", "flow.pt", without("encoder_proj.weight"), "missing tensor encoder_proj.weight"),
        ("token2wav", "hift.pt", misshapen("conv_post.bias"), "tensor conv_post.bias has shape [17], expected [18]"),
        ("token2wav", "flow.pt", lambda path: path.write_bytes(b"not a pickle"), "flow.pt: "),
        ("token2wav", "cosyvoice2.yaml", text(HOSTILE), "!!python/object/apply:os.system"),
        ("frontend", "spk2info.pt", lambda path: path.write_bytes(b"not a pickle"), "spk2info.pt: "),
    ],
)
def test_the_start_names_the_fault(
    tmp_path: Path, service: str, file: str, change: Callable[[Path], None], words: str
) -> None:
    model = Path(shutil.copytree(DEMO, tmp_path / "model"))
    change(model / file)
    ended = run_service(service, LISTEN="127.0.0.1:0", MODEL=str(model), LOG_LEVEL="ERROR")
    last = ended.stderr.strip().splitlines()[-1]
    assert ended.returncode == 3, ended.stderr
    assert words in last or words.replace("!!python/", "tag:yaml.org,2002:python/") in last
    assert str(model) in last
    assert "Traceback" not in ended.stderr
    assert not (ROOT / "hacked").exists()
