"""The candidates for the engine, and the errors if they cannot serve."""

from pathlib import Path

import pytest

from cosyserve.engines import benchmark_note as engine_note
from cosyserve.errors import SettingsError
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import candidates, load_chosen, tensorrt_first

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"


def names(backend: str, auto_first: str = "", **changes: object) -> list[str]:
    settings = EngineSettings(**changes)  # type: ignore[arg-type]
    return [
        name for name, _, _ in candidates(backend, settings, tensorrt=tensorrt_first(backend, settings, auto_first))
    ]


@pytest.mark.parametrize(
    ("backend", "auto_first", "changes", "expected"),
    [
        ("auto", "", {"device": "auto"}, ["paged", "readable", "cpu"]),
        ("auto", "", {"device": "cuda:1"}, ["paged", "readable"]),
        ("auto", "", {"device": "cpu"}, ["cpu"]),
        ("auto", "tensorrt", {"device": "auto"}, ["tensorrt", "paged", "readable", "cpu"]),
        ("auto", "tensorrt", {"device": "cuda:1"}, ["tensorrt", "paged", "readable"]),
        ("auto", "tensorrt", {"device": "cpu"}, ["cpu"]),
        ("torch", "tensorrt", {"device": "auto"}, ["paged", "readable", "cpu"]),
        ("torch", "", {"device": "auto"}, ["paged", "readable", "cpu"]),
        ("torch", "", {"device": "cuda", "gpu_engine": "paged"}, ["paged"]),
        ("tensorrt", "", {"device": "auto"}, ["tensorrt"]),
        ("onnxruntime", "", {"device": "auto"}, ["onnxruntime"]),
        ("fake", "", {"device": "auto"}, ["fake"]),
    ],
)
def test_the_candidates_are_what_backend_and_device_allow(
    backend: str, auto_first: str, changes: dict[str, object], expected: list[str]
) -> None:
    assert names(backend, auto_first, **changes) == expected


def test_tensorrt_that_was_measured_to_be_faster_here_comes_first(tmp_path: Path) -> None:
    facts = engine_note.facts(engine_note.TOKEN2WAV, GOLDEN, "fp16")
    engine_note.write(tmp_path, facts, "tensorrt", {"compile+fp16": 0.2, "trt+fp16": 0.1})
    measured = {"device": "auto", "engines": tmp_path, "model": GOLDEN}
    assert names("auto", **measured, engine_precision="fp16") == ["tensorrt", "paged", "readable", "cpu"]
    assert names("auto", **measured, engine_precision="fp32") == ["paged", "readable", "cpu"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"device": "tpu"}, "device 'tpu' is not known"), ({"gpu_engine": "x", "device": "cuda"}, "'x'")],
)
def test_what_is_not_known_is_said_by_the_loader(changes: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_chosen("auto", EngineSettings(model=GOLDEN, **changes))  # type: ignore[arg-type]


def test_a_machine_without_a_gpu_ends_on_the_cpu_and_says_why() -> None:
    footing = load_chosen("auto", EngineSettings(model=GOLDEN, device="auto"), auto_first="tensorrt")
    assert (footing.rung, footing.engine.identity.backend) == ("cpu", "torch")
    assert [one.rung for one in footing.refused] == ["tensorrt", "paged", "readable"]
    assert "backend tensorrt needs the package tensorrt: pip install" in footing.refused[0].reason
    assert all(one.reason.startswith("device 'cuda' cannot be used: ") for one in footing.refused[1:])


def test_strict_ends_the_start_with_the_reason() -> None:
    with pytest.raises(
        SettingsError,
        match="COSYSERVE_TOKEN2WAV_STRICT is true and tensorrt cannot serve: backend tensorrt needs the package",
    ):
        load_chosen("auto", EngineSettings(model=GOLDEN, device="auto"), strict=True, auto_first="tensorrt")
