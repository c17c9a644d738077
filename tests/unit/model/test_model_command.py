"""`cosyserve model`: a step that cannot run here says so in one line."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from cosyserve.__main__ import main, parser
from tests.unit.model.file_server import Handler, serving

ROOT = Path(__file__).parents[3]


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    known = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in names else known(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def test_all_that_follows_the_step_is_the_steps() -> None:
    given = parser().parse_args(["model", "download", "--mirror", "DIR", "x", "--json", "-v", "--"])
    assert (given.step, given.rest) == ("download", ["--mirror", "DIR", "x", "--json", "-v", "--"])


@pytest.mark.parametrize(
    ("step", "missing", "said"),
    [
        ("convert", ("torch",), "model convert needs torch: pip install 'cosyserve-server[cpu,engines]'"),
        ("convert", ("torch", "tokenizers"), "model convert needs torch and tokenizers: pip install"),
        ("export", ("onnx",), "model export needs onnx: pip install 'cosyserve-server[cpu,engines]'"),
        ("prune", ("tools.model.prune",), "model prune is not part of this installation"),
        ("inspect", ("tools",), "model inspect is not part of this installation"),
    ],
)
def test_what_is_missing_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str, missing: tuple[str, ...], said: str
) -> None:
    without(monkeypatch, *missing)
    assert main(["model", step, "x"]) == 1
    assert capsys.readouterr().err.startswith(f"cosyserve: {said}")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["inspect", "nothing"], 1, "nothing: no such directory"),
        (["inspect"], 2, "the following arguments are required: DIR"),
        (["convert", "nothing"], 2, "the following arguments are required: --target, --output"),
        (["prune", "--older-than", "soon"], 2, "soon"),
    ],
)
def test_a_failure_is_an_object_where_one_was_asked_for(
    tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    command = [sys.executable, "-m", "cosyserve", "model", *arguments, "--json"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == status
    assert said in json.loads(ended.stdout)["error"]["message"], ended.stdout
    assert not ended.stderr


def test_a_stage_whose_library_is_missing_says_so() -> None:
    """The LLM's stages, which run next to TensorRT-LLM, do without onnx."""
    program = (
        "import sys; sys.modules['onnx'] = None\n"
        "from tools.model import build, build_llm, verify, verify_llm\n"
        "sys.exit(build.main(['models/demo']) + verify.main(['token2wav', 'models/demo']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.stderr == "cosyserve: this needs onnx for token2wav: pip install 'cosyserve-server[cpu,engines]'\n" * 2
    assert ended.returncode == 2


def step(*words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cosyserve", "model", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_the_steps_status_is_the_commands() -> None:
    for words, status in (
        (("prune", "--no-such-option"), 2),
        (("build", "--help"), 0),
        (("prune", "--conversions", "/nowhere"), 1),
    ):
        process = step(*words)
        process.communicate(timeout=60)
        assert process.returncode == status, words


def test_a_ctrl_c_ends_in_one_line_and_what_was_done_stays(tmp_path: Path) -> None:
    """The server sends a part of the file and then nothing."""
    asked, ended = threading.Event(), threading.Event()

    def behave(handler: Handler, content: bytes) -> bool:
        if handler.path != "/llm.pt":
            return False
        handler.part(content, 0, cut=1000)
        asked.set()
        ended.wait(60)
        return True

    (tmp_path / "catalogue.toml").write_text(
        'what = "a test"\n[files."llm.pt"]\nfor = "a test"\nabout = 1\n'
        + "".join(f'[{hub}]\nrepository = "a/b"\nrevision = "main"\n' for hub in ("huggingface", "modelscope"))
    )
    with serving({"/llm.pt": bytes(3_000_000)}) as server:
        server.behave = behave
        process = step(
            "download",
            str(tmp_path / "model"),
            "--mirror",
            server.address,
            "--catalogue",
            str(tmp_path / "catalogue.toml"),
        )
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        ended.set()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "cosyserve: stopped; the next run goes on from here"
    assert "Traceback" not in errors
