"""Versions beside the support table, and the table beside the page that shows it."""

from pathlib import Path

import pytest
from cosyserve.host.doctor.installation_checks import check_library, check_library_combinations

from cosyserve.host.hardware import SUPPORTED_LIBRARIES, format_version, parse_version

LIBRARIES = {library.name: library for library in SUPPORTED_LIBRARIES}
PAGE = Path(__file__).parents[5] / "docs" / "doctor.md"


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
    found = check_library(LIBRARIES[name], versions, has_gpu)
    assert found.state == state
    if state != "ok":
        assert found.means
        assert found.fix.startswith("pip install ")


def test_the_line_of_tensorrt_llm_that_the_guides_pin() -> None:
    assert check_library_combinations({"tensorrt_llm": "0.20.0", "tensorrt": "10.10.0.31", "protobuf": "5.29.5"}) == []
    found = check_library_combinations({"tensorrt_llm": "0.20.0", "tensorrt": "10.13.0.35", "protobuf": "7.36.2"})
    assert [finding.check for finding in found] == ["tensorrt_llm and tensorrt", "tensorrt_llm and protobuf"]
    assert check_library_combinations({"tensorrt_llm": "1.0.0", "tensorrt": "10.13.0.35", "protobuf": "5.29.5"}) == []


def test_two_packages_that_write_the_same_files() -> None:
    (found,) = check_library_combinations({"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"})
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
