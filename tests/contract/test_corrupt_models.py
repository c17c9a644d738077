"""A model directory that cannot be served stops the start of the service it belongs to: exit status
3 and one line that names the fault.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "models" / "demo"


def start(service: str, model: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COSYSERVE_")}
    prefix = f"COSYSERVE_{service.upper()}_"
    environment |= {f"{prefix}LISTEN": "127.0.0.1:0", f"{prefix}MODEL": str(model), f"{prefix}LOG_LEVEL": "ERROR"}
    command = [sys.executable, "-m", f"services.{service}"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def without(key: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        tensors = torch.load(path, weights_only=True)
        del tensors[key]
        torch.save(tensors, path)

    return change


def misshapen(key: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        tensors = torch.load(path, weights_only=True)
        tensors[key] = tensors[key][:-1].clone()
        torch.save(tensors, path)

    return change


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
    ended = start(service, model)
    last = ended.stderr.strip().splitlines()[-1]
    assert ended.returncode == 3, ended.stderr
    assert words in last or words.replace("!!python/", "tag:yaml.org,2002:python/") in last
    assert str(model) in last
    assert "Traceback" not in ended.stderr
    assert not (ROOT / "hacked").exists()
