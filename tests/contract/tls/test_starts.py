"""A service whose certificate files cannot be used does not start, and says which file and why."""

from pathlib import Path

import pytest

from tests.stacks.certificates import Authority, Folder
from tests.stacks.up_process import run_service

STAGES = {"FRONTEND": "127.0.0.1:1", "LLM": "127.0.0.1:2", "TOKEN2WAV": "127.0.0.1:3"}


@pytest.mark.parametrize(
    ("service", "settings"),
    [
        ("llm", {"BACKEND": "fake"}),
        ("orchestrator", STAGES),
        ("gateway", {"ORCHESTRATOR": "127.0.0.1:1"}),
    ],
)
def test_a_key_of_another_certificate(service: str, settings: dict[str, str], tmp_path: Path) -> None:
    authority = Authority()
    folder = Folder(tmp_path / "tls").put(authority.issue(), authority.pem)
    folder.key.write_bytes(authority.issue().key)
    pair = {"TLS_CERTIFICATE": str(folder.certificate), "TLS_KEY": str(folder.key)}
    done = run_service(service, LISTEN="127.0.0.1:0", **settings, **pair)
    assert done.returncode == 2
    assert done.stderr.endswith(f"{folder.key} is not the key of the certificate in {folder.certificate}\n")


@pytest.mark.parametrize(
    ("service", "settings"), [("orchestrator", STAGES), ("gateway", {"ORCHESTRATOR": "127.0.0.1:1"})]
)
def test_a_ca_for_calls_that_is_missing(service: str, settings: dict[str, str], tmp_path: Path) -> None:
    done = run_service(service, LISTEN="127.0.0.1:0", CALLS_CA=str(tmp_path / "ca.crt"), **settings)
    assert done.returncode == 2
    assert f"{tmp_path / 'ca.crt'} cannot be read: No such file or directory\n" in done.stderr
