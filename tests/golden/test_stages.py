"""Every stage of `verify` makes what the reference recorded, and notices what it is there to
notice.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.token2wav.vocoder import hift_vocoder as vocoder_module
from services.token2wav.vocoder.hift_vocoder import load_hift
from services.token2wav.vocoder.state import UpstreamVocoderState
from tools.verify.__main__ import STAGES, run, run_stage
from tools.verify.report import Report

TINY = Path(__file__).parent / "tiny"
INPUTS = {
    *("text_ids", "prompt_text_ids", "prompt_speech_ids", "forced_speech_ids", "greedy_min_top2_gap"),
    *("bistream_text_ids", "bistream_prompt_speech_ids", "bistream_limit", "nucleus_sharp_scale"),
    *("prompt_token", "token", "spk_embedding", "prompt_feat", "x", "mask", "mask_partial", "mu", "t", "spks", "cond"),
    *("mel", "sine_noise", "rand_ini", "cache_source", "sinegen_f0", "sinegen_stride", "hift_source#"),
    *("offline_source", "wav16k", "wav24k", "wav44k"),
}
"""Arrays that the others are made from; #: the number of a call."""


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return run(TINY)


def bad_rows(report: Report) -> dict[str, str]:
    return {row.array: row.verdict for row in report.rows if row.verdict != "ok"}


@pytest.mark.parametrize(
    ("stage", "rows"),
    [
        ("text", "text_frontend.json/text_normalize_without_wetext[6].split"),
        ("text", "text_frontend.json/encode[0]"),
        ("text", "spk2info.pt/zs_a.prompt_mel"),
        ("features", 10),
        ("llm", "llm.npz/bistream_tokens_no_prompt"),
        ("flow", "flow_mel.npz/mel_streaming_finalize (blocks)"),
        ("vocoder", "token2wav_stream.npz/speed_1p25_mel"),
        ("token2wav", 3 + 3 * 4 + 3 * 3),
    ],
)
def test_a_stage_is_within_tolerance(reports: dict[str, Report], stage: str, rows: str | int) -> None:
    """rows: how many there are, or one of them."""
    report = reports[stage]
    assert report.ok, report.as_table()
    assert rows in (len(report.rows), *(row.array for row in report.rows))


def test_every_array_is_compared_or_an_input(reports: dict[str, Report]) -> None:
    compared = {row.array.split(" ")[0] for stage in STAGES for row in reports[stage].rows}
    left = set()
    for path in TINY.glob("*.npz"):
        with np.load(path) as arrays:
            left |= {name for name in arrays.files if f"{path.name}/{name}" not in compared}
    assert {re.sub(r"\d+$", "#", name) if name.startswith("hift_") else name for name in left} == INPUTS


def changed(tmp_path: Path, file: str, changes: dict[str, float | None] | None) -> Path:
    """A copy of the bundle. changes: what is added to an array, None: the array is removed; None in
    place of all: the file is removed.
    """
    bundle = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    with np.load(bundle / file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    (bundle / file).unlink()
    if changes is not None:
        for name, change in changes.items():
            arrays[name] = arrays.get(name, np.zeros(3, np.float32)) + (change or 0.0)
            if change is None:
                del arrays[name]
        np.savez(bundle / file, **arrays)
    return bundle


@pytest.mark.parametrize(
    ("stage", "file", "changes", "bad"),
    [
        ("features", "features.npz", {"mel24k": 1.0, "novel": 1.0}, {"mel24k": "FAIL", "novel": "MISSING"}),
        (
            "llm",
            "llm.npz",
            {"greedy_tokens": 1.0, "hidden_last": 1e-3, "novel": 1.0, "ras_argmax_tokens": None},
            {"greedy_tokens": "FAIL", "hidden_last": "FAIL", "novel": "MISSING", "ras_argmax_tokens": "MISSING"},
        ),
        ("flow", "flow_mel.npz", {"mel_chunk1_full": 1e-4}, {"mel_chunk1_full": "FAIL"}),
        ("flow", "flow_mel.npz", {"rand_noise": 1e-6}, {"rand_noise": "FAIL"}),
        ("flow", "estimator.npz", {"out_streaming": 1e-4}, {"out_streaming": "FAIL"}),
        ("flow", "flow_encoder.npz", {"layer0_out": None}, {"layer0_out": "MISSING"}),
        ("flow", "flow_encoder.npz", {"layer9_out": 1.0}, {"layer9_out": "MISSING"}),
        ("flow", "estimator.npz", {"mu": None}, {"mu": "MISSING"}),
        ("vocoder", "hift.npz", {"f0": None, "novel": 1.0}, {"f0": "MISSING", "novel": "MISSING"}),
        ("vocoder", "token2wav_stream.npz", None, {"": "MISSING"}),
        ("token2wav", "token2wav_stream.npz", None, {"": "MISSING"}),
    ],
)
def test_a_difference_is_noticed(
    tmp_path: Path, stage: str, file: str, changes: dict[str, float | None] | None, bad: dict[str, str]
) -> None:
    wanted = {f"{file}/{name}".rstrip("/"): verdict for name, verdict in bad.items()}
    assert bad_rows(run_stage(stage, changed(tmp_path, file, changes))) == wanted


def test_arrays_without_their_inputs_are_missing(tmp_path: Path) -> None:
    report = run_stage("llm", changed(tmp_path, "llm.npz", {"bistream_limit": None}))
    bad = bad_rows(report)
    assert set(bad.values()) == {"MISSING"}
    assert {"llm.npz/bistream_limit", "llm.npz/bistream_sampled_no_prompt"} <= bad.keys()
    assert "llm.npz/greedy_tokens" in {row.array for row in report.rows} - bad.keys()


def test_a_changed_text_case_is_reported(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(TINY, tmp_path / "bundle"))
    path = bundle / "text_frontend.json"
    path.write_text(path.read_text(encoding="utf-8").replace("twelve items", "twelve things"), encoding="utf-8")
    assert bad_rows(run_stage("text", bundle))["text_frontend.json/text_normalize_without_wetext[6].split"] == "FAIL"


def test_the_upstream_schedule_of_calls_gives_the_recorded_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    vocoder = load_hift(ModelDirectory(TINY), torch.device("cpu"))
    with np.load(TINY / "token2wav_stream.npz") as arrays:
        calls = range(int(arrays["n_calls"]))
        mels, sources, chunks = (
            [torch.from_numpy(arrays[f"{name}{call}"][0]) for call in calls]
            for name in ("hift_mel", "hift_source", "wav_chunk")
        )
    recorded = iter(sources)
    monkeypatch.setattr(vocoder.source, "generate", lambda f0, before, noise, ended: (next(recorded), None))
    state = UpstreamVocoderState(seed=0, sentence=0)
    for call in calls:
        new = mels[call] if call == 0 else mels[call][:, vocoder_module.OVERLAP_FRAMES :]
        samples = vocoder.step_upstream(state, new, final=call == calls[-1])
        torch.testing.assert_close(samples, chunks[call], rtol=0, atol=2e-5)
    assert (state.frames, state.bytes) == (202, 0)
