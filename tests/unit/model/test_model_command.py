"""`cosyserve model`: a step that cannot run here says so in one line."""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from cosyserve.__main__ import main, parser
from tests.unit.model.file_server import Handler, serving, write_catalogue
from tests.unit.model.steps import ROOT, ended, step


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    known = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        hidden = any(name == each or name.startswith(f"{each}.") for each in names)
        return None if hidden else known(name, package)

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
        ("inspect", ("tools",), "model needs the package cosyserve-server, which is not installed here"),
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
    returned, out, errors = ended(*arguments, "--json", cwd=tmp_path)
    assert (returned, errors) == (status, "")
    assert said in json.loads(out)["error"]["message"], out


def test_a_stage_whose_library_is_missing_says_so() -> None:
    """The LLM's stages, which run next to TensorRT-LLM, do without onnx."""
    program = (
        "import sys; sys.modules['onnx'] = None\n"
        "from tools.model import build, build_llm, verify, verify_llm\n"
        "sys.exit(build.main(['models/demo']) + verify.main(['token2wav', 'models/demo']))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "cosyserve: this needs onnx for token2wav: pip install 'cosyserve-server[cpu,engines]'\n" * 2
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("prune", "--no-such-option"), 2, r"\A\Z"),
        (("prune", "--conversions", "/nowhere"), 1, r"\A\Z"),
        (("build", "llm", "--help"), 0, "--max-num-tokens"),
        (("build", "--help"), 0, r"\Ausage: cosyserve model build llm CHECKPOINT"),
    ],
)
def test_the_steps_status_and_output_are_the_commands(words: tuple[str, ...], status: int, said: str) -> None:
    returned, out, _ = ended(*words)
    assert returned == status
    assert re.search(said, out), out


def test_a_ctrl_c_ends_in_one_line_and_what_was_done_stays(tmp_path: Path) -> None:
    """The server sends a part of the file and then nothing."""
    asked, over = threading.Event(), threading.Event()

    def stalled(handler: Handler, content: bytes) -> None:
        handler.part(content, 0, cut=1000)
        asked.set()
        over.wait(60)

    catalogue = tmp_path / "catalogue.toml"
    write_catalogue(catalogue, "llm.pt")
    with serving({"/llm.pt": bytes(3_000_000)}) as server:
        server.answers["/llm.pt"] = stalled
        words = ("--mirror", server.address, "--catalogue", str(catalogue))
        process = subprocess.Popen(**step("download", str(tmp_path / "model"), *words), stderr=subprocess.PIPE)
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        over.set()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "cosyserve: stopped; the next run goes on from here"
    assert "Traceback" not in errors
