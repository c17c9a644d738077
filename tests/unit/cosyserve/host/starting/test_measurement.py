"""What is measured of a deployment, and the notes of it for later starts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosyserve.engines import benchmark_note as engine_note
from cosyserve.host.starting import measurement as measuring
from cosyserve.host.starting.measurement import Trial, read_notes, write_notes


def sound(seed: int) -> bytes:
    """One second."""
    return np.random.default_rng(seed).integers(-9000, 9000, 24_000).astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("gpus", "heard", "fault"),
    [
        ([], [1, 1], None),
        ([], [1, 2], "the same request with the same seed gave other samples"),
        (["H200"], [1, 1], None),
        (["H200"], [1, 2, 2], None),
        (["H200"], [1, 2, 3], "the same request with the same seed gave other samples"),
    ],
)
async def test_samples_are_the_same_at_once_or_on_a_gpu_from_the_second_request_on(
    gpus: list[str], heard: list[int], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(SimpleNamespace(audio=1.0), sound(seed)) for seed in heard]
    left = iter(answers)

    async def speak(client: Any, text: str) -> Any:
        return next(left)

    monkeypatch.setattr(measuring, "_speak", speak)
    monkeypatch.setattr(measuring, "visible_gpus", lambda: gpus)
    measured = await measuring.measure(SimpleNamespace())  # type: ignore[arg-type]
    assert measured.fault == fault
    assert next(left, None) is None
    assert (measured.cold, measured.warm) == (answers[0][0], answers[-1][0])


MODEL = Path(__file__).parents[5] / "models" / "demo"
GPU = {"gpu": "NVIDIA Test", "compute_capability": "9.0", "driver": "580.1"}


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_note, "visible_gpus", lambda: [GPU])


def trials(**factors: float | None) -> list[Trial]:
    """By name of the configuration; None for one that did not speak."""
    measured: dict[str, Any] = {
        name if name == "fp16" else f"{name}+fp16": SimpleNamespace(warm=SimpleNamespace(real_time_factor=factor))
        for name, factor in factors.items()
    }
    return [Trial(name, 1.0, None if of.warm.real_time_factor is None else of) for name, of in measured.items()]


def environ(tmp_path: Path) -> dict[str, str]:
    return {"COSYSERVE_TOKEN2WAV_ENGINES": str(tmp_path / "flow"), "COSYSERVE_LLM_ENGINES": str(tmp_path / "llm")}


@pytest.mark.parametrize(
    ("measured", "preferred", "after"),
    [
        ({"compile": 0.20, "vllm": 0.10, "trt": 0.30}, {"llm": "vllm", "token2wav": ""}, {"llm": "vllm"}),
        (
            {"compile": 0.20, "vllm": 0.15, "trtllm": 0.12, "trt": 0.1},
            {"llm": "tensorrt_llm", "token2wav": "tensorrt"},
            None,
        ),
        ({"compile": 0.20, "vllm": 0.19}, {"llm": ""}, {}),
        ({"compile": 0.20, "fp16": 0.10, "vllm": 0.15}, {"llm": ""}, {}),
        ({"compile": 0.20, "trt": None}, {}, {}),
        ({"compile": None, "trt": 0.1}, {}, {}),
    ],
)
def test_the_faster_one_is_kept(
    measured: dict[str, float | None], preferred: dict[str, str], after: dict[str, str] | None, tmp_path: Path
) -> None:
    assert write_notes(trials(**measured), MODEL, environ(tmp_path)) == preferred
    assert read_notes(MODEL, environ(tmp_path)) == (preferred if after is None else after)


def test_another_driver_library_or_precision_is_another_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_notes(trials(compile=0.2, vllm=0.1, trt=0.1), MODEL, environ(tmp_path))
    assert read_notes(MODEL, environ(tmp_path)) == {"llm": "vllm", "token2wav": "tensorrt"}
    assert read_notes(MODEL, environ(tmp_path) | {"COSYSERVE_TOKEN2WAV_ENGINE_PRECISION": "bf16"}) == {"llm": "vllm"}
    (note,) = (tmp_path / "llm").iterdir()
    preferred = json.loads(note.read_text())
    assert preferred["real_time_factors"] == {"compile+fp16": 0.2, "vllm+fp16": 0.1}
    assert preferred["facts"].items() >= GPU.items()
    monkeypatch.setattr(engine_note, "library_versions", lambda *names: {"torch": "9.9"})
    assert read_notes(MODEL, environ(tmp_path)) == {}


def test_a_note_of_this_name_about_something_else_does_not_count(tmp_path: Path) -> None:
    write_notes(trials(compile=0.2, vllm=0.1), MODEL, environ(tmp_path))
    (note,) = (tmp_path / "llm").iterdir()
    note.write_text(note.read_text().replace("NVIDIA Test", "another"))
    assert read_notes(MODEL, environ(tmp_path)) == {}
