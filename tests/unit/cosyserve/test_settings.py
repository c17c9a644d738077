"""Settings from the environment: what is missing, unknown or malformed is named."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


LINKS = {
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
"""Kubernetes injects them."""
READ: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "every type is read, and other variables are left alone": (
        {
            "COSYSERVE_LLM_COUNT": "3",
            "COSYSERVE_LLM_SHARE": "0.25",
            "COSYSERVE_LLM_FAST": "Yes",
            "COSYSERVE_LLM_MODEL": "/models/demo",
            "COSYSERVE_LLM_PEERS": "a:1, b:2,",
            "COSYSERVE_TOKEN2WAV_COUNT": "not ours",
            "PATH": "/bin",
        },
        {"count": 3, "share": 0.25, "fast": True, "model": Path("/models/demo"), "peers": ("a:1", "b:2")},
    ),
    "an empty optional is none": ({"COSYSERVE_LLM_MODEL": ""}, {"model": None}),
    **{
        f"{name} is near to nothing": ({name: "x"}, {})
        for name in ("COSYSERVE_GPU_SHARING", "COSYSERVE_TAG", "COSYSERVE_TTS_ADDRESS", "COSYSERVE_LMM_SERVICE_HOST")
    },
    "service links of Kubernetes": ({f"COSYSERVE_LLM_{name}": text for name, text in LINKS.items()}, {}),
}


@pytest.mark.parametrize(("environ", "values"), READ.values(), ids=READ)
def test_what_is_set_is_read_and_the_rest_is_left_alone(environ: dict[str, str], values: dict[str, Any]) -> None:
    assert load(Example, "COSYSERVE_LLM_", LISTEN | environ) == Example(listen="127.0.0.1:0", **values)


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "COSYSERVE_LLM_CUONT",
            "3",
            r"COSYSERVE_LLM_CUONT is not a setting .*; did you mean COSYSERVE_LLM_COUNT\? known: .*COSYSERVE_LLM_COUNT",
        ),
        ("COSYSERVE_LLM_ZZZZ", "3", "not a setting of this service; known: "),
        ("COSYSERVE_LLM_PORT", "50053", "COSYSERVE_LLM_PORT is not a setting"),
        ("COSYSERVE_LLM_METRICS_PORT", "50053", "COSYSERVE_LLM_METRICS_PORT is not a setting"),
        ("COSYSERVE_LLM_COUNT", "three", "COSYSERVE_LLM_COUNT='three' is not a valid int"),
        ("COSYSERVE_LLM_SHARE", "half", "COSYSERVE_LLM_SHARE='half' is not a valid float"),
        ("COSYSERVE_LLM_FAST", "maybe", "COSYSERVE_LLM_FAST='maybe' is not a valid bool"),
        ("COSYSERVE_LLM_COUNT", "0", "COUNT must be positive, got 0"),
        # No service reads these, so each reports them.
        ("COSYSERVE_LMM_LISTEN", "x", r"COSYSERVE_LMM_LISTEN is not .*; did you mean COSYSERVE_LLM_LISTEN\?"),
        ("COSYSERVE_TOKEN2VAW_DEVICE", "x", r"is not a setting; did you mean COSYSERVE_TOKEN2WAV_DEVICE\?"),
        ("COSYSERVE_FRONT_END_MODEL", "x", r"is not a setting; did you mean COSYSERVE_FRONTEND_END_MODEL\?"),
        ("COSYSERVE_GPU_SHARNG", "x", r"is not a setting; did you mean COSYSERVE_GPU_SHARING\?"),
        ("COSYSERVE_CACHEDIR", "x", r"is not a setting; did you mean COSYSERVE_CACHE_DIR\?"),
    ],
)
def test_what_is_wrong_with_a_variable_is_named(variable: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(Example, "COSYSERVE_LLM_", LISTEN | {variable: text})


def test_missing_is_named() -> None:
    with pytest.raises(SettingsError, match="COSYSERVE_LLM_LISTEN is not set"):
        load(Example, "COSYSERVE_LLM_", {})
