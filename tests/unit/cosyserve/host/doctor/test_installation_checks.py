"""Versions compared with the support table, the table and the page that shows it, and model
directories that lack something.
"""

import shutil
from pathlib import Path

import pytest

from cosyserve.host.doctor.finding import State
from cosyserve.host.doctor.installation_checks import (
    check_library,
    check_library_combinations,
    check_model,
    checkpoint_bytes,
)
from cosyserve.host.hardware import SUPPORTED_LIBRARIES, format_version, parse_version
from tests.unit.cosyserve.host.fake_gpu import gpu, machine

LIBRARIES = {library.name: library for library in SUPPORTED_LIBRARIES}
ROOT = Path(__file__).parents[5]
PAGE = ROOT / "docs" / "doctor.md"


@pytest.mark.parametrize(
    ("name", "versions", "has_gpu", "state"),
    [
        ("torch", {"torch": "2.13.0+cpu"}, False, "ok"),
        ("torch", {"torch": "2.5.1+cu124"}, True, "problem"),
        ("torch", {}, False, "problem"),
        ("triton", {}, False, "ok"),
        ("triton", {}, True, "note"),
        ("triton", {"pytorch-triton": "3.6.0+git1"}, True, "ok"),
        ("triton", {"triton": "3.3.1"}, True, "note"),
        ("tensorrt", {"tensorrt-cu12": "10.13.0.35"}, True, "ok"),
        ("tensorrt", {"tensorrt": "8.6.1"}, True, "note"),
        ("tensorrt", {"tensorrt": "11.0.0"}, True, "note"),
        ("tensorrt_llm", {"tensorrt_llm": "1.0.0rc2"}, True, "ok"),
        ("tensorrt_llm", {"tensorrt_llm": "0.20.0"}, True, "ok"),
        ("tensorrt_llm", {"tensorrt_llm": "0.17.0"}, True, "note"),
        ("vllm", {"vllm": "0.9.0"}, True, "note"),
        ("grpcio", {"grpcio": "1.71.0"}, False, "problem"),
        ("protobuf", {"protobuf": "5.29.0"}, False, "ok"),
        ("protobuf", {"protobuf": "4.25.3"}, False, "problem"),
    ],
)
def test_each_version_is_judged(name: str, versions: dict[str, str], has_gpu: bool, state: str) -> None:
    found = check_library(LIBRARIES[name], machine(*[gpu()] * has_gpu, **versions))
    assert (found.state, bool(found.means)) == (state, state != "ok")
    assert found.fix.startswith("pip install " if state != "ok" else "")


def test_the_line_of_tensorrt_llm_that_the_guides_pin() -> None:
    pinned = {"tensorrt_llm": "0.20.0", "tensorrt": "10.10.0.31", "protobuf": "5.29.5"}
    assert check_library_combinations(machine(**pinned)) == []
    found = check_library_combinations(machine(**pinned | {"tensorrt": "10.13.0.35", "protobuf": "7.36.2"}))
    assert [finding.check for finding in found] == ["tensorrt_llm and tensorrt", "tensorrt_llm and protobuf"]
    assert check_library_combinations(machine(**pinned | {"tensorrt_llm": "1.0.0", "tensorrt": "10.13.0.35"})) == []


def test_two_packages_that_write_the_same_files() -> None:
    (found,) = check_library_combinations(machine(onnxruntime="1.31.1", onnxruntime__gpu="1.31.1"))
    assert "uninstall" in found.fix


def test_versions_of_every_form() -> None:
    assert [parse_version(text) for text in ("2.13.0+cpu", "1.0.0rc2", "10.13.0.35", "unknown")] == [
        (2, 13, 0),
        (1, 0, 0),
        (10, 13, 0, 35),
        (),
    ]


def test_the_page_shows_the_table() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    shown = {row[0]: row[1:4] for row in rows}
    for library in SUPPORTED_LIBRARIES:
        below = f", below {format_version(library.below)}" if library.below else ""
        assert shown[f"`{library.name}`"] == [f"{format_version(library.oldest)}{below}", library.seen, library.what]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "models" / "demo", tmp_path / "model"))


def test_the_bundled_model_and_a_published_layout_are_whole(model: Path) -> None:
    (found,) = check_model(model)
    assert found.state is State.OK
    assert f"{checkpoint_bytes(model) / 1e6:.0f} MB" in found.observed
    tiny = check_model(ROOT / "tests" / "golden" / "tiny")
    assert {finding.state for finding in tiny} == {State.NOTE}
    assert all("no voice can be made" in finding.means for finding in tiny)
    tiny3 = check_model(ROOT / "tests" / "golden" / "tiny3")
    assert {finding.state for finding in tiny3} == {State.NOTE}
    assert ["campplus.onnx" in tiny3[0].observed, "speech_tokenizer_v3.onnx" in tiny3[1].observed] == [True, True]
    assert all("--generation cosyvoice3" in finding.fix for finding in tiny3)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("llm.pt", "llm.pt"),
        ("flow.pt", "flow.pt"),
        ("hift.pt", "hift.pt"),
        ("cosyvoice2.yaml", "cosyvoice2.yaml"),
        ("CosyVoice-BlankEN/config.json", "CosyVoice-BlankEN/config.json"),
        ("phonemes/symbols.json", "CosyVoice-BlankEN/vocab.json"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_fetches_it(model: Path, name: str, missing: str) -> None:
    (model / name).unlink()
    found = check_model(model)
    assert all(
        finding.state is State.PROBLEM and f"cosyserve model download {model}" in finding.fix for finding in found
    )
    assert any(missing in finding.observed for finding in found)


def test_phonemes_are_no_tokenizer_of_a_generation_with_a_system_part(model: Path, tmp_path: Path) -> None:
    """Its frontend would not start."""
    third = Path(shutil.copytree(ROOT / "tests" / "golden" / "tiny3", tmp_path / "tiny3"))
    shutil.copytree(model / "phonemes", third / "phonemes")
    before = check_model(third)
    (third / "CosyVoice-BlankEN" / "vocab.json").unlink()
    (found,) = [finding for finding in check_model(third) if finding not in before]
    assert (found.state, "CosyVoice-BlankEN/vocab.json: missing" in found.observed) == (State.PROBLEM, True)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (None, "its end is missing"),
    ],
)
def test_files_that_are_not_what_they_seem(model: Path, content: bytes | None, told: str) -> None:
    whole = (model / "flow.pt").read_bytes()
    (model / "flow.pt").write_bytes(whole[: len(whole) // 2] if content is None else content)
    (found,) = check_model(model)
    assert (found.state, told in found.observed) == (State.PROBLEM, True)


def test_no_directory_at_all(tmp_path: Path) -> None:
    (found,) = check_model(tmp_path / "nowhere")
    assert found.state is State.PROBLEM
    assert "no such model directory" in found.observed
