"""The flow of CosyVoice3 makes what the reference recorded, and a flow with a fault does not."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from services.token2wav.flow.dit.block import Rotation
from tools.verify import flow
from tools.verify.recording import check_all_compared
from tools.verify.report import Report

TINY3 = Path(__file__).parent / "tiny3"
FILES = ("flow_encoder.npz/", "estimator.npz/", "flow_mel.npz/")


def bad_rows(bundle: Path) -> set[str]:
    report = Report()
    flow.verify(bundle, report)
    return {row.array for row in report.rows if row.verdict != "ok"}


def test_every_array_is_within_tolerance() -> None:
    report, rest = Report(), Report()
    flow.verify(TINY3, report)
    assert report.ok, report.as_table()
    check_all_compared(TINY3, [row.array for row in report.rows], rest)
    assert not [row.array for row in rest.rows if row.array.startswith(FILES)]


def test_a_rotation_of_every_head_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_head(self: Rotation, heads: torch.Tensor) -> torch.Tensor:
        for head in range(heads.shape[2]):
            heads[:2, :, head] = self(heads[:2, :, head])
        return heads

    monkeypatch.setattr(Rotation, "of_first_head", every_head)
    bad = bad_rows(TINY3)
    assert {"estimator.npz/block0_q_rotated", "estimator.npz/out_streaming", "flow_mel.npz/mel_offline"} <= bad
    assert "estimator.npz/input_embed_out" not in bad


def test_a_network_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "generation_of", lambda directory: replace(COSYVOICE3, flow_network="made-up"))
    with pytest.raises(ModelError, match="layers of the flow's network 'made-up' are not known to verify"):
        flow.verify(TINY3, Report())


@pytest.mark.parametrize("array", ["x_after_step5", "hop_after", "mel_chunk1_full"])
def test_a_changed_array_fails_by_name(array: str, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(TINY3, tmp_path / "bundle"))
    with np.load(bundle / "flow_mel.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays[array] = arrays[array] + 1
    np.savez(bundle / "flow_mel.npz", **arrays)  # type: ignore[arg-type]  # its annotation forbids keywords
    assert bad_rows(bundle) == {f"flow_mel.npz/{array}"}
