"""The vocoder computes what the reference computed, network and streamed calls alike."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder import vocoder as vocoder_module
from services.token2wav.vocoder.vocoder import load_vocoder
from tools.verify.report import Report
from tools.verify.vocoder import verify

TINY = Path(__file__).parent / "tiny"
RECORDED_INPUTS = {
    "mel",
    "sine_noise",
    "rand_ini",
    "cache_source",
    "sinegen_f0",
    "sinegen_stride",
    "n_calls",
    "offline_source",
}


def test_every_output_array_within_tolerance() -> None:
    report = Report()
    verify(TINY, report)
    assert report.ok, report.as_table()
    with np.load(TINY / "hift.npz") as hift, np.load(TINY / "token2wav_stream.npz") as stream:
        outputs = {f"hift.npz/{name}" for name in hift} | {f"token2wav_stream.npz/{name}" for name in stream}
    inputs = {
        name for name in outputs if name.split("/")[1] in RECORDED_INPUTS or ("_mel" in name and "speed" not in name)
    }
    inputs |= {name for name in outputs if "hift_source" in name or "cache_source_len" in name}
    assert {row.array for row in report.rows} == outputs - inputs


def test_what_cannot_be_compared_is_missing(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    with np.load(bundle / "hift.npz") as hift:
        arrays = dict(hift)
    del arrays["f0"]
    np.savez(bundle / "hift.npz", novel=np.zeros(3), **arrays)
    (bundle / "token2wav_stream.npz").unlink()
    report = Report()
    verify(bundle, report)
    assert {row.array for row in report.rows if row.verdict == "MISSING"} == {
        "hift.npz/f0",
        "hift.npz/novel",
        "token2wav_stream.npz",
    }


def test_the_upstream_schedule_of_calls_gives_the_recorded_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    vocoder = load_vocoder(ModelDirectory(TINY), torch.device("cpu"))
    with np.load(TINY / "token2wav_stream.npz") as arrays:
        calls = int(arrays["n_calls"])
        mels = [torch.from_numpy(arrays[f"hift_mel{call}"][0]) for call in range(calls)]
        sources = [torch.from_numpy(arrays[f"hift_source{call}"][:, 0]) for call in range(calls)]
        chunks = [torch.from_numpy(arrays[f"wav_chunk{call}"][0]) for call in range(calls)]
    recorded = iter(sources)
    monkeypatch.setattr(vocoder.source, "generate", lambda f0, before, noise, ended: (next(recorded), None))
    state = vocoder.start_upstream(seed=0, sentence=0)
    for call in range(calls):
        new = mels[call] if call == 0 else mels[call][:, vocoder_module.OVERLAP_FRAMES :]
        samples = vocoder.step_upstream(state, new, final=call == calls - 1)
        torch.testing.assert_close(samples, chunks[call], rtol=0, atol=2e-5)
    assert state.frames == 202
    assert state.bytes == 0
