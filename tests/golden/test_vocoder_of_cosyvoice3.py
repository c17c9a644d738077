"""The vocoder of CosyVoice3 makes what the reference recorded, a vocoder with a fault does not, and
its tensors are those of the published file.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder.causal.source import CausalPitch, CausalSource
from services.token2wav.vocoder.causal.weights import read_config
from services.token2wav.vocoder.weights import expected_tensors
from tools.verify import token2wav, vocoder
from tools.verify.recording import check_all_compared
from tools.verify.report import Report

GOLDEN = Path(__file__).parent
TINY3 = GOLDEN / "tiny3"
FILES = ("hift.npz/", "token2wav_stream.npz/")


def bad_rows(bundle: Path) -> set[str]:
    report = Report()
    vocoder.verify(bundle, report)
    return {row.array for row in report.rows if row.verdict != "ok"}


class RecordedFlow:
    """Answers with the mel that the reference's flow made in each call."""

    def __init__(self) -> None:
        with np.load(TINY3 / "token2wav_stream.npz") as arrays:
            self._mels = iter([torch.from_numpy(arrays[f"hift_mel{call}"][0]) for call in range(3)])

    def prefix(self, *_: object, **__: object) -> Tensor:
        return next(self._mels)


def test_every_array_is_within_tolerance(monkeypatch: pytest.MonkeyPatch) -> None:
    report, rest = Report(), Report()
    vocoder.verify(TINY3, report)
    monkeypatch.setattr(token2wav, "load_flow", lambda *_: RecordedFlow())
    token2wav.verify(TINY3, report)
    assert report.ok, report.as_table()
    check_all_compared(TINY3, [row.array for row in report.rows], rest)
    assert not [row.array for row in rest.rows if row.array.startswith(FILES)]


def test_a_phase_that_moves_inside_a_sum_of_another_type_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference rounds every sum to float32; what it would be without is another source."""
    waves = CausalSource.waves

    def exact(self: CausalSource, f0: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        _, voiced, totals = waves(self, f0, total)
        turns = torch.cumsum(f0.double()[..., None] * torch.arange(1, 10) / 24_000, dim=1)
        return torch.sin(2 * torch.pi * 480 * turns).float() * 0.1 * voiced, voiced, totals

    monkeypatch.setattr(CausalSource, "waves", exact)
    assert {"hift.npz/source", "hift.npz/source_zero_noise"} <= bad_rows(TINY3)


def test_a_pitch_that_looks_back_instead_of_ahead_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = CausalPitch.exact
    monkeypatch.setattr(CausalPitch, "exact", lambda self, mel, history: exact(self, mel.roll(3, dims=2), history))
    bad = bad_rows(TINY3)
    assert {"hift.npz/f0", "hift.npz/source", "hift.npz/wav_zero_noise"} <= bad
    assert not {"hift.npz/wav", "hift.npz/conv_post_out"} & bad


def test_changed_arrays_fail_by_name(tmp_path: Path) -> None:
    names = ("call1_wav", "call0_source_samples", "lookahead_first_changed_sample")
    bundle = Path(shutil.copytree(TINY3, tmp_path / "bundle"))
    with np.load(bundle / "hift.npz") as archive:
        arrays = {name: archive[name] + (1 if name in names else 0) for name in archive.files}
    np.savez(bundle / "hift.npz", **arrays)  # type: ignore[arg-type]  # its annotation forbids keywords
    assert bad_rows(bundle) == {f"hift.npz/{name}" for name in names}


def test_the_published_tensors() -> None:
    config = replace(read_config(ModelDirectory(TINY3)), base_channels=512, f0_channels=512)
    shapes = json.loads((GOLDEN / "published_shapes_cosyvoice3.json").read_text())["hift.pt"]
    assert expected_tensors(config) == {name: tuple(shape) for name, shape in shapes.items()}
    assert len(shapes) == 328
