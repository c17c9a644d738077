"""Model directories that lack something, or hold something else than it seems."""

import shutil
from pathlib import Path

import pytest
from cosyserve.host.doctor.installation_checks import check_model, checkpoint_bytes

from cosyserve.host.doctor.finding import State

ROOT = Path(__file__).parents[5]


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


@pytest.mark.parametrize(
    "name",
    ["llm.pt", "flow.pt", "hift.pt", "cosyvoice2.yaml", "CosyVoice-BlankEN/config.json", "phonemes/symbols.json"],
)
def test_what_is_missing_is_named_with_the_command_that_fetches_it(model: Path, name: str) -> None:
    (model / name).unlink()
    found = check_model(model)
    assert all(
        finding.state is State.PROBLEM and f"cosyserve model download {model}" in finding.fix for finding in found
    )
    wanted = "CosyVoice-BlankEN/vocab.json" if name.startswith("phonemes") else name
    assert any(wanted in finding.observed for finding in found)


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
