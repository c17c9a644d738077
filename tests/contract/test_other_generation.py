"""What belongs to another generation of the model than the directory is refused when a service
starts, each with a message of its own and exit status 3.
"""

import shutil
from pathlib import Path

import pytest

from tests.stacks.up_process import TINY, TINY3, run_service


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the reduced model of CosyVoice3."""
    return Path(shutil.copytree(TINY3, tmp_path / "model", ignore=shutil.ignore_patterns("*.npz")))


def refused(service: str, model: Path) -> str:
    """The one line with which the service says why it does not start."""
    backend = {} if service == "frontend" else {"BACKEND": "torch"}
    ended = run_service(service, LISTEN="127.0.0.1:0", MODEL=str(model), LOG_LEVEL="ERROR", **backend)
    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1), ended.stderr
    return ended.stderr.strip()


@pytest.mark.parametrize("service", ["frontend", "llm", "token2wav"])
def test_a_directory_with_the_yaml_of_two_generations(service: str, model: Path) -> None:
    shutil.copy(TINY / "cosyvoice2.yaml", model)
    message = refused(service, model)
    assert message.startswith(f"{model}: ")
    assert "cosyvoice2.yaml and cosyvoice3.yaml are there, of CosyVoice2 and CosyVoice3" in message


@pytest.mark.parametrize("service", ["frontend", "llm", "token2wav"])
def test_a_yaml_with_a_part_of_the_other_generation(service: str, model: Path) -> None:
    yaml = model / "cosyvoice3.yaml"
    text = yaml.read_text()
    assert ".CausalHiFTGenerator\n" in text
    yaml.write_text(text.replace(".CausalHiFTGenerator\n", ".HiFTGenerator\n"))
    assert "hift is a HiFTGenerator, of CosyVoice2; CosyVoice3 has a CausalHiFTGenerator" in refused(service, model)


@pytest.mark.parametrize(
    ("service", "weights"), [("llm", "llm.pt"), ("token2wav", "flow.pt"), ("token2wav", "hift.pt")]
)
def test_weights_of_the_other_generation(service: str, weights: str, model: Path) -> None:
    shutil.copy(TINY / weights, model)
    message = refused(service, model)
    assert message.startswith(f"{model}/{weights}: its ")
    assert "those of CosyVoice2; the directory's yaml is of CosyVoice3" in message


def test_a_file_of_voices_of_the_other_generation(model: Path) -> None:
    shutil.copy(TINY / "spk2info.pt", model)
    message = refused("frontend", model)
    assert message.startswith(f"{model}/spk2info.pt: voice 'zs_a': ")
    assert "so it is of another generation, and this model is of CosyVoice3" in message


def test_a_tokenizer_without_the_mark(model: Path) -> None:
    """A phoneme model cannot be served as CosyVoice3."""
    shutil.rmtree(model / "CosyVoice-BlankEN")
    shutil.copytree(Path("models/demo/phonemes"), model / "phonemes")
    assert "the tokenizer has no <|endofprompt|>, which CosyVoice3 needs" in refused("frontend", model)
