"""`cosyserve model verify llm --runtime`: an engine that chooses as torch does passes, another one
fails with the decisions that differ.
"""

import json
import shutil
from pathlib import Path

import pytest

from services.llm.generation.request import Prompt
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE
from tests.unit.llm.hosted.hosts import library
from tests.unit.llm.tiny_llm import TINY
from tools.model import verify, verify_llm
from tools.model.comparison import engine_decisions as spoken
from tools.model.comparison.converted_model import Question


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence of three words."""
    question = Question(Prompt((11, 12), (40, 41, 42)), (20, 21, 22), ())
    monkeypatch.setattr(verify_llm, "questions", lambda model, vocabulary, shortest: iter([("short", question)]))
    monkeypatch.setattr(spoken, "SEEDS", (1,))


def arguments(converted: Path, runtime: str) -> list[str]:
    return ["llm", str(TINY), str(converted), "--runtime", runtime, "--json"]


@pytest.mark.parametrize(("runtime", "form"), [("tensorrt_llm", "hf"), ("vllm", "hf"), ("vllm", "vllm")])
def test_an_engine_that_decides_as_torch_does_passes(
    converted: Path, runtime: str, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with library(runtime, monkeypatch):
        assert verify.main(arguments(converted.with_name(form), runtime)) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["error"] for row in report["arrays"]] == [0.0, 0.0]
    assert all(int(row["array"].split()[-2]) > 5 for row in report["arrays"])


def test_one_decision_that_differs_is_one_and_what_follows_is_compared(
    converted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = spoken.spoken

    async def turned(backend: object, sentence: object) -> list[int]:
        tokens = await plain(backend, sentence)  # type: ignore[arg-type]
        at = 4 - len(sentence.replay)  # type: ignore[attr-defined]
        if type(backend).__name__ == "HostedBackend" and 0 <= at < len(tokens):
            tokens[at] += 1
        return tokens

    monkeypatch.setattr(spoken, "spoken", turned)
    with library("vllm", monkeypatch):
        status = verify.main(arguments(converted, "vllm"))
    report = json.loads(capsys.readouterr().out)
    assert status == (report["arrays"][-1]["error"] > 0.1)
    assert [line.partition(": ")[2] for line in report["first_differences"]] == ["decisions 4 differ"]
    assert [row["error"] * int(row["array"].split()[-2]) for row in report["arrays"]] == [pytest.approx(1.0)] * 2


def test_an_engine_without_its_bias_fails(
    converted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(converted, tmp_path, dirs_exist_ok=True)
    data = bytearray((tmp_path / HEAD_BIAS_FILE).read_bytes())
    size = 8 + int.from_bytes(data[:8], "little")
    data[size + 4 * 276 :] = bytes(len(data) - size - 4 * 276)
    (tmp_path / HEAD_BIAS_FILE).write_bytes(data)
    with library("vllm", monkeypatch):
        assert verify.main(arguments(tmp_path, "vllm")) == 1
    assert "FAIL" in capsys.readouterr().out


def sentence(decisions: int, differing: int) -> spoken.Agreement:
    return spoken.Agreement("sentence", decisions, tuple(range(differing)))


@pytest.mark.parametrize(
    ("sentences", "right"),
    [
        ([sentence(49, 5), sentence(167, 3)], True),  # a right engine in bfloat16
        ([sentence(100, 10)], True),
        ([sentence(100, 6), sentence(100, 15)], False),
        # wrong with one prompt, and a twentieth of all
        ([sentence(20, 11), sentence(200, 0)], False),
        ([sentence(10, 10)] * 6, False),  # without its head's bias: each is given up after ten
    ],
)
def test_rounding_is_judged_by_all_decisions_and_a_fault_by_each_sentence(
    sentences: list[spoken.Agreement], right: bool
) -> None:
    report, lines = verify_llm.judged(sentences)
    assert report.ok is right
    assert len(lines) == sum(bool(one.differing) for one in sentences)


def test_what_cannot_run_here_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["llm", str(TINY), "--runtime", "tensorrt_llm"]) == 1
    assert "tensorrt_llm needs an NVIDIA GPU" in capsys.readouterr().err
    assert verify.main(["llm", str(TINY)]) == 2
    assert "CONVERSION is missing" in capsys.readouterr().err
