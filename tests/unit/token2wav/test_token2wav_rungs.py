"""Which engines token2wav would take, and what it says where they cannot serve."""

from pathlib import Path

import pytest

from cosyserve.errors import SettingsError
from services.token2wav.backend import EngineSettings
from services.token2wav.rungs import load_chosen, rungs

GOLDEN = Path(__file__).parents[2] / "golden" / "tiny"


def names(backend: str, **changes: str) -> list[str]:
    return [name for name, _, _ in rungs(backend, EngineSettings(**changes))]  # type: ignore[arg-type]


def test_auto_is_the_whole_ladder_and_names_are_their_part_of_it() -> None:
    assert names("auto", device="auto") == ["tensorrt", "paged", "readable", "cpu"]
    assert names("auto", device="cuda:1") == ["tensorrt", "paged", "readable"]
    assert names("auto", device="cpu") == ["cpu"]
    assert names("torch", device="auto") == ["paged", "readable", "cpu"]
    assert names("torch", device="cuda", gpu_engine="paged") == ["paged"]
    assert [names(name, device="auto") for name in ("tensorrt", "onnxruntime", "fake")] == [["tensorrt"], ["onnxruntime"], ["fake"]]


@pytest.mark.parametrize(
    ("changes", "message"), [({"device": "tpu"}, "device 'tpu' is not known"), ({"gpu_engine": "x", "device": "cuda"}, "'x'")]
)
def test_what_is_not_known_is_said_by_the_loader(changes: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_chosen("auto", EngineSettings(model=GOLDEN, **changes))  # type: ignore[arg-type]


def test_a_machine_without_a_gpu_ends_on_the_cpu_and_says_why() -> None:
    footing = load_chosen("auto", EngineSettings(model=GOLDEN, device="auto"))
    assert (footing.rung, footing.engine.identity.backend) == ("cpu", "torch")
    assert [one.rung for one in footing.refused] == ["tensorrt", "paged", "readable"]
    assert "backend tensorrt needs the package tensorrt: pip install" in footing.refused[0].reason
    assert all(one.reason.startswith("device 'cuda' cannot be used: ") for one in footing.refused[1:])


def test_strict_ends_the_start_with_the_reason() -> None:
    with pytest.raises(
        SettingsError, match="COSYSERVE_TOKEN2WAV_STRICT is true and tensorrt cannot serve: backend tensorrt needs the package"
    ):
        load_chosen("auto", EngineSettings(model=GOLDEN, device="auto"), strict=True)
