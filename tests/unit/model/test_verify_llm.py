"""`cosyserve model verify llm`: conversions that are right pass in every form, and each mistake is
named by its layer.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.weights import ServedModel
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary
from tests.unit.model.steps import DEMO, TINY, damage
from tools.model import verify
from tools.model.checkpoints.forms import TARGETS
from tools.model.checkpoints.tensor_file import Precision
from tools.model.comparison.converted_model import Block, Converted, read_conversion
from tools.model.convert import convert
from tools.model.verify_llm import compare, questions, reference


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    for target in TARGETS:
        convert(TINY, target, Precision.BFLOAT16, folder / target)
    return folder


@pytest.fixture(scope="module")
def model() -> SpeechTokenModel:
    return reference(ServedModel.read(TINY), Precision.BFLOAT16, rounded_bias=False)


@pytest.mark.parametrize("target", TARGETS)
def test_every_form_says_what_the_torch_path_says(
    written: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify.main(["llm", str(TINY), str(written / target), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["first_differences"] == []
    rows = [row for row in result["arrays"] if row["array"].endswith("log-probabilities")]
    assert [row["array"].partition(":")[0] for row in rows] == [
        "llm.npz",
        "0 tokens of prompt, 30 spoken",
        "40 tokens of prompt, 60 spoken",
    ]
    assert all(0 < row["error"] < 2e-5 for row in rows), "independent sums never agree to the last bit"
    assert len(result["arrays"]) == (3 if target == "vllm" else 6)


def shifted(conversion: Converted, layer: int, **parts: torch.Tensor) -> Converted:
    plain = conversion.block

    def block(at: int) -> Block:
        return replace(plain(at), **parts) if at == layer else plain(at)  # type: ignore[arg-type]

    return replace(conversion, block=block)


@pytest.mark.parametrize("target", ["hf", "trtllm-1.x", "vllm"])
@pytest.mark.parametrize("mistake", ["gate and up", "qkv", "rotary", "embedding", "tying", "bias", "mask"])
def test_a_mistake_is_named_by_its_layer(written: Path, model: SpeechTokenModel, target: str, mistake: str) -> None:
    right = read_conversion(written / target, f"llm-{target}")
    first, second = right.block(0), right.block(1)
    wrong, place = {
        "gate and up": (shifted(right, 1, gate=second.up, up=second.gate), "layer 1 is"),
        "qkv": (shifted(right, 0, qkv=first.qkv.roll(16, 0)), "layer 0 is"),
        "rotary": (replace(right, sizes=replace(right.sizes, theta=10_000.0)), "layer 0 is"),
        "embedding": (
            replace(right, embedded=lambda question: right.embedded(question).roll(1, 0)),
            "the embedding is",
        ),
        "tying": (replace(right, head=right.head.roll(1, 0)), "every layer agrees;"),
        "bias": (
            replace(right, bias=right.bias.clone().index_fill_(0, torch.tensor([right.first + 7]), 9.0)),
            "every layer agrees;",
        ),
        "mask": (replace(right, bias=torch.zeros_like(right.bias)), "every layer agrees;"),
    }[mistake]
    report, lines = compare(model, wrong, iter([next(questions(TINY, ExtendedVocabulary(276, COSYVOICE2.speech)))]))
    (line,) = lines
    assert (report.ok, line.startswith(place), line.endswith("(llm.npz)")) == (False, True, True), line


def test_what_cannot_be_compared_is_reported(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    convert(TINY, "hf", Precision.FLOAT16, tmp_path / "hf")
    damage(tmp_path / "hf" / "model.safetensors")
    for conversion, model, words in (
        (tmp_path / "hf", TINY, "its sha256 is not the manifest's; convert the model again"),
        (written / "hf", DEMO, "was made of model "),
        (TINY, TINY, "no conversion; make one with cosyserve model convert"),
    ):
        assert verify.main(["llm", str(model), str(conversion)]) == 1
        assert words in capsys.readouterr().err
