"""`verify` says yes to the reference bundle, and no, by name, to everything that is not it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tools.verify.__main__ import main

TINY = Path(__file__).parent / "tiny"


def verify(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]]]:
    """Exit status, and the row of every array that is not ok."""
    status = main([str(directory), "--json"])
    stages = json.loads(capsys.readouterr().out)["stages"]
    return status, {row["array"]: row for rows in stages.values() for row in rows if row["verdict"] != "ok"}


def copy_of_tiny(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "bundle"))


def rewrite(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    change(arrays)
    np.savez(path, **arrays)


def test_the_reference_bundle_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(TINY, capsys) == (0, {})


def test_the_table_ends_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(TINY)]) == 0
    assert "within tolerance" in capsys.readouterr().out.splitlines()[-1]


def test_a_perturbed_weight_fails_and_names_what_it_reaches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = copy_of_tiny(tmp_path)
    weights = torch.load(bundle / "llm.pt", weights_only=True)
    weights["llm_decoder.bias"][17] += 0.01
    torch.save(weights, bundle / "llm.pt")
    status, bad = verify(bundle, capsys)
    assert status == 1
    assert bad["llm.npz/logprobs_forced"]["verdict"] == "FAIL"
    assert not [array for array in bad if not array.startswith("llm.npz/")]


def test_a_changed_and_a_deleted_reference_fail_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = copy_of_tiny(tmp_path)

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["wav_zero_noise"][0, 1000] += 0.01

    rewrite(bundle / "hift.npz", change)
    rewrite(bundle / "features.npz", lambda arrays: arrays.pop("mel24k"))
    status, bad = verify(bundle, capsys)
    assert status == 1
    verdicts = {array: row["verdict"] for array, row in bad.items()}
    assert verdicts == {"hift.npz/wav_zero_noise": "FAIL", "features.npz/mel24k": "MISSING"}
    assert bad["hift.npz/wav_zero_noise"]["error"] == pytest.approx(0.01, abs=2e-3)


def test_an_array_that_no_stage_knows_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = copy_of_tiny(tmp_path)
    shapes = json.loads((bundle / "arrays.json").read_text())
    shapes["estimator"]["novel"] = [[2], "float32"]
    (bundle / "arrays.json").write_text(json.dumps(shapes))
    rewrite(bundle / "estimator.npz", lambda arrays: arrays.update(novel=np.zeros(2, np.float32)))
    assert [*verify(bundle, capsys)[1]] == ["estimator.npz/novel"]


def test_a_model_without_references_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = copy_of_tiny(tmp_path)
    for path in [*bundle.glob("*.npz"), bundle / "arrays.json", bundle / "text_frontend.json"]:
        path.unlink()
    status, bad = verify(bundle, capsys)
    assert status == 1
    assert {
        "arrays.json",
        "llm.npz",
        "flow_encoder.npz",
        "estimator.npz",
        "flow_mel.npz",
        "token2wav_stream.npz",
        "hift.npz",
    } <= set(bad)


def test_no_directory_and_no_model_have_their_own_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nothing")]) == 2
    assert f"{tmp_path}/nothing: no such directory" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 3
    assert "cosyvoice2.yaml: missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [(["nothing"], 2, "no such directory"), (["."], 3, "missing"), ([], 2, "required")],
)
def test_a_failure_is_an_object_where_one_was_asked_for(
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--json"]) == status
    printed = capsys.readouterr()
    assert message in json.loads(printed.out)["error"]["message"]
    assert not printed.err
