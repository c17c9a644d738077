"""spk2info.pt into the storage and out of it, in both layouts, and nothing that a file could do to us."""

from pathlib import Path

import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.frontend.blobs import open_blobs
from services.frontend.speaker_transfer import main
from services.frontend.voice_model import voice_model
from services.frontend.voice_store import VoiceStore
from tests.unit.frontend.test_frontend_voices import TINY, VECTOR, Hostile, zero_shot

TRITON = {
    "prompt_text": "hi there",
    "speech_token": torch.arange(10)[None],
    "speech_feat": torch.ones(1, 20, 80),
    "embedding": VECTOR,
}


def transfer(tmp_path: Path, direction: str, file: Path, *options: str) -> int:
    return main([direction, str(file), "--model", str(TINY), "--voices", str(tmp_path / "voices"), *options])


def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(open_blobs(str(tmp_path / "voices"), voice_model(ModelDirectory(TINY))))


def saved(tmp_path: Path, speakers: object) -> Path:
    torch.save(speakers, tmp_path / "in.pt")
    return tmp_path / "in.pt"


@pytest.mark.parametrize("layout", ["zero-shot", "triton"])
def test_what_goes_in_comes_out(tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    speakers = {"001": TRITON} if layout == "triton" else {"zs": zero_shot(), "sft": {"embedding": VECTOR}}
    assert transfer(tmp_path, "import", saved(tmp_path, speakers)) == 0
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", layout) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{len(speakers)} voices: ")
    back = torch.load(tmp_path / "out.pt", weights_only=True)
    assert set(back) == set(speakers)
    for name, entry in speakers.items():
        for field, value in entry.items():
            if isinstance(value, str):
                assert back[name][field] == value
            else:
                assert torch.equal(back[name][field].to(value.dtype), value), field


def test_only_those_that_are_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, {"a": zero_shot(), "b": zero_shot(), "001": TRITON})
    assert transfer(tmp_path, "import", file, "--only", "b", "--only", "001") == 0
    assert store(tmp_path).ids() == ["001", "b"]
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--only", "b") == 0
    assert list(torch.load(tmp_path / "out.pt", weights_only=True)) == ["b"]


@pytest.mark.parametrize(
    ("speakers", "options", "said"),
    [
        ({"a": zero_shot(), "../x": zero_shot()}, (), "id is '../x'"),
        ({"a": zero_shot(), "b": {}}, (), "voice 'b': field flow_embedding or embedding is missing"),
        ({"a": zero_shot(), "b": Hostile()}, (), "not a file of plain tensors"),
        ({"a": zero_shot()}, ("--only", "b"), "has no voice 'b'"),
    ],
)
def test_a_file_with_one_fault_brings_nothing(
    tmp_path: Path,
    speakers: object,
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert transfer(tmp_path, "import", saved(tmp_path, speakers), *options) == 1
    assert said in capsys.readouterr().err
    assert store(tmp_path).ids() == []
    assert not (tmp_path / "hostile-was-here").exists()


def test_what_a_layout_cannot_hold_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot()}))
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", "triton") == 1
    assert "the voice 'zs' has no transcript, which this layout needs" in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()
    assert transfer(tmp_path, "import", tmp_path / "none.pt") == 1
    assert "none.pt: no such file" in capsys.readouterr().err
    assert transfer(tmp_path, "import", tmp_path / "in.pt") == 1
    assert "there is a voice 'zs' already" in capsys.readouterr().err


def test_the_id_of_a_preset_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, {"aa": zero_shot(), "zs_a": zero_shot()})
    assert transfer(tmp_path, "import", file) == 1
    assert (
        "ALREADY_EXISTS: there is a voice 'zs_a' already, which comes with the model; choose others with --only" in capsys.readouterr().err
    )
    assert store(tmp_path).ids() == []
    assert transfer(tmp_path, "import", file, "--only", "aa") == 0
    assert store(tmp_path).ids() == ["aa"]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot()})) == 0
    for target in (tmp_path / "missing" / "out.pt", tmp_path / "in.pt" / "out.pt"):
        capsys.readouterr()
        assert transfer(tmp_path, "export", target) == 1
        said = capsys.readouterr()
        assert said.err.startswith("cosyserve: [Errno ")
        assert said.err.count("\n") == 1
        assert str(target.parent) in said.err
        assert said.out == ""


def test_voices_of_another_model_are_on_another_shelf(tmp_path: Path) -> None:
    demo = ModelDirectory(TINY.parents[2] / "models" / "demo")
    assert voice_model(demo) != voice_model(ModelDirectory(TINY))
    transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot()}))
    assert VoiceStore(open_blobs(str(tmp_path / "voices"), voice_model(demo))).ids() == []
