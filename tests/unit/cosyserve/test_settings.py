"""Settings from the environment: what is missing, unknown or malformed is named."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from cosyserve.errors import SettingsError
from cosyserve.settings import load


@dataclass(frozen=True, kw_only=True)
class Example:
    listen: str
    count: int = 1
    share: float = 0.5
    fast: bool = False
    model: Path | None = None
    peers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"COUNT must be positive, got {self.count}")


LISTEN = {"COSYSERVE_LLM_LISTEN": "127.0.0.1:0"}


def test_every_type_is_read_and_other_variables_are_left_alone() -> None:
    environ = LISTEN | {
        "COSYSERVE_LLM_COUNT": "3",
        "COSYSERVE_LLM_SHARE": "0.25",
        "COSYSERVE_LLM_FAST": "Yes",
        "COSYSERVE_LLM_MODEL": "/models/demo",
        "COSYSERVE_LLM_PEERS": "a:1, b:2,",
        "COSYSERVE_TOKEN2WAV_COUNT": "not ours",
        "PATH": "/bin",
    }
    expected = Example(
        listen="127.0.0.1:0", count=3, share=0.25, fast=True, model=Path("/models/demo"), peers=("a:1", "b:2")
    )
    assert load(Example, "COSYSERVE_LLM_", environ) == expected


def test_an_empty_optional_is_none() -> None:
    assert load(Example, "COSYSERVE_LLM_", LISTEN | {"COSYSERVE_LLM_MODEL": ""}).model is None


def test_missing_is_named() -> None:
    with pytest.raises(SettingsError, match="COSYSERVE_LLM_LISTEN is not set"):
        load(Example, "COSYSERVE_LLM_", {})


def test_unknown_is_named_with_what_is_known() -> None:
    with pytest.raises(SettingsError, match=r"COSYSERVE_LLM_CUONT is not a setting.*COSYSERVE_LLM_COUNT"):
        load(Example, "COSYSERVE_LLM_", LISTEN | {"COSYSERVE_LLM_CUONT": "3"})


def test_a_misspelt_name_is_told_what_was_meant() -> None:
    with pytest.raises(
        SettingsError, match=r"COSYSERVE_LLM_CUONT is not .*; did you mean COSYSERVE_LLM_COUNT\? known: "
    ):
        load(Example, "COSYSERVE_LLM_", LISTEN | {"COSYSERVE_LLM_CUONT": "3"})
    with pytest.raises(SettingsError, match="not a setting of this service; known: "):
        load(Example, "COSYSERVE_LLM_", LISTEN | {"COSYSERVE_LLM_ZZZZ": "3"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("COSYSERVE_LMM_LISTEN", "COSYSERVE_LLM_LISTEN"),
        ("COSYSERVE_TOKEN2VAW_DEVICE", "COSYSERVE_TOKEN2WAV_DEVICE"),
        ("COSYSERVE_FRONT_END_MODEL", "COSYSERVE_FRONTEND_END_MODEL"),
        ("COSYSERVE_GPU_SHARNG", "COSYSERVE_GPU_SHARING"),
        ("COSYSERVE_CACHEDIR", "COSYSERVE_CACHE_DIR"),
    ],
)
def test_a_misspelt_service_is_told_what_was_meant(variable: str, meant: str) -> None:
    """No service reads it, so each says it."""
    with pytest.raises(SettingsError, match=rf"{variable} is not a setting; did you mean {meant}\?"):
        load(Example, "COSYSERVE_LLM_", LISTEN | {variable: "x"})


@pytest.mark.parametrize(
    "variable", ["COSYSERVE_GPU_SHARING", "COSYSERVE_TAG", "COSYSERVE_TTS_ADDRESS", "COSYSERVE_LMM_SERVICE_HOST"]
)
def test_names_that_are_near_to_nothing_are_left_alone(variable: str) -> None:
    assert load(Example, "COSYSERVE_LLM_", LISTEN | {variable: "x"}).count == 1


@pytest.mark.parametrize(
    ("name", "text", "kind"), [("COUNT", "three", "int"), ("SHARE", "half", "float"), ("FAST", "maybe", "bool")]
)
def test_a_malformed_value_is_named(name: str, text: str, kind: str) -> None:
    with pytest.raises(SettingsError, match=f"COSYSERVE_LLM_{name}='{text}' is not a valid {kind}"):
        load(Example, "COSYSERVE_LLM_", LISTEN | {f"COSYSERVE_LLM_{name}": text})


def test_a_value_out_of_range_is_named() -> None:
    with pytest.raises(SettingsError, match="COUNT must be positive, got 0"):
        load(Example, "COSYSERVE_LLM_", LISTEN | {"COSYSERVE_LLM_COUNT": "0"})


def test_kubernetes_service_links_are_passed_over() -> None:
    links = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "50053",
        "SERVICE_PORT_GRPC": "50053",
        "PORT": "tcp://10.0.0.1:50053",
        "PORT_50053_TCP": "tcp://10.0.0.1:50053",
        "PORT_50053_TCP_PROTO": "tcp",
        "PORT_50053_TCP_PORT": "50053",
        "PORT_50053_TCP_ADDR": "10.0.0.1",
        "HEADLESS_SERVICE_HOST": "10.0.0.2",
        "HEADLESS_PORT": "udp://10.0.0.2:53",
    }
    assert load(
        Example, "COSYSERVE_LLM_", LISTEN | {f"COSYSERVE_LLM_{name}": text for name, text in links.items()}
    ) == Example(listen="127.0.0.1:0")


@pytest.mark.parametrize("name", ["PORT", "METRICS_PORT"])
def test_a_port_that_is_no_link_is_unknown(name: str) -> None:
    with pytest.raises(SettingsError, match=f"COSYSERVE_LLM_{name} is not a setting"):
        load(Example, "COSYSERVE_LLM_", LISTEN | {f"COSYSERVE_LLM_{name}": "50053"})
