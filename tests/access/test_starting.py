"""Where a server may listen without keys, and what `cosyserve keys` and `--keys` do."""

import json
from pathlib import Path

import pytest

from cosyserve.errors import SettingsError
from cosyserve.host.starting.serving import callers
from cosyserve.keys import key_file
from cosyserve.keys.secret import digest
from cosyserve.settings import load
from services.gateway.settings import GatewaySettings
from services.orchestrator.settings import PREFIX, OrchestratorSettings
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.up_process import run_cosyserve, run_service

STAGES = {"FRONTEND": "127.0.0.1:1", "LLM": "127.0.0.1:1", "TOKEN2WAV": "127.0.0.1:1"}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(keys_of([key_holder("alice")]))
    return path


def orchestrator(listen: str, **settings: str) -> OrchestratorSettings:
    values = {**STAGES, "LISTEN": listen, **settings}
    return load(OrchestratorSettings, PREFIX, {PREFIX + name: value for name, value in values.items()})


def test_an_orchestrator_that_others_reach_needs_keys_or_a_word(keys: Path) -> None:
    assert orchestrator("127.0.0.1:0").gate() is None
    with pytest.raises(SettingsError, match=r"0\.0\.0\.0:1 can be reached .*KEYS_FILE.*--insecure"):
        orchestrator("0.0.0.0:1")
    assert orchestrator("0.0.0.0:1", INSECURE="true").gate() is None
    assert orchestrator("0.0.0.0:1", KEYS_FILE=str(keys)).gate() is not None
    assert orchestrator("0.0.0.0:1", KEYS=keys.read_text()).gate() is not None
    with pytest.raises(SettingsError, match="both set"):
        orchestrator("0.0.0.0:1", KEYS_FILE=str(keys), KEYS=keys.read_text())
    with pytest.raises(SettingsError, match="JWT_KEYS is not set"):
        orchestrator("127.0.0.1:0", JWT_ISSUER="https://id", JWT_AUDIENCE="speech")
    with pytest.raises(SettingsError, match="JWT_ALGORITHMS names HS256"):
        orchestrator("127.0.0.1:0", JWT_ALGORITHMS="HS256")


def test_a_process_says_both_ways_out(tmp_path: Path) -> None:
    refused = run_service("orchestrator", LISTEN="0.0.0.0:0", **STAGES)
    assert refused.returncode == 2
    assert "KEYS_FILE" in refused.stderr
    assert "--insecure" in refused.stderr
    broken = tmp_path / "keys.json"
    broken.write_text('{"keys": [{"id": "alice", "sha256": "short"}]}')
    refused = run_service("orchestrator", LISTEN="127.0.0.1:0", KEYS_FILE=str(broken), **STAGES)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "keys[0]: sha256" in refused.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listen": "0.0.0.0:1"}, "REQUIRE_KEY=true"),
        ({"wyoming_listen": "0.0.0.0:1"}, "WYOMING_API_KEY_FILE"),
    ],
)
def test_a_gateway_in_front_of_an_open_orchestrator(settings: dict[str, str], said: str) -> None:
    for orchestrator in ("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"):
        with pytest.raises(ValueError, match=said):
            GatewaySettings(orchestrator=orchestrator, **settings)  # type: ignore[arg-type]
    GatewaySettings(orchestrator="127.0.0.1:1", insecure=True, **settings)  # type: ignore[arg-type]
    if "listen" in settings:
        GatewaySettings(orchestrator="127.0.0.1:1", require_key=True, **settings)  # type: ignore[arg-type]
        GatewaySettings(orchestrator="dns:///orchestrator:1", **settings)  # type: ignore[arg-type]


def test_what_up_gives_its_services(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local, http = "127.0.0.1:0", "127.0.0.1:0"
    assert callers(None, local, http, insecure=False) == {}
    for listen, web in (("0.0.0.0:1", "off"), (local, "0.0.0.0:1")):
        with pytest.raises(SettingsError, match=r"--keys FILE.*--insecure"):
            callers(None, listen, web, insecure=False)
        assert callers(None, listen, web, insecure=True)["COSYSERVE_ORCHESTRATOR_INSECURE"] == "true"
        given = callers(keys, listen, web, insecure=False)
        assert given["COSYSERVE_ORCHESTRATOR_KEYS_FILE"] == str(keys)
        assert given["COSYSERVE_GATEWAY_REQUIRE_KEY"] == "true"
    with pytest.raises(SettingsError, match="cannot be read"):
        callers(keys.with_name("none"), local, http, insecure=False)
    monkeypatch.setenv("COSYSERVE_ORCHESTRATOR_KEYS_FILE", str(keys))
    assert callers(None, "0.0.0.0:1", "off", insecure=False)["COSYSERVE_GATEWAY_REQUIRE_KEY"] == "true"


def test_keys_from_the_command_line(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")

    def run(*arguments: str, code: int = 0) -> str:
        result = run_cosyserve("keys", *arguments, "--keys", path)
        assert result.returncode == code, result.stderr
        return result.stdout + result.stderr

    secret = run("add", "alice", "--concurrent", "2", "--weight", "3", "--days", "1").strip()
    (record,) = key_file.read(Path(path))
    assert (record.id, record.sha256, record.limits.concurrent, record.weight) == ("alice", digest(secret), 2, 3.0)
    assert secret not in Path(path).read_text()
    assert "already" in run("add", "alice", code=2)
    assert "expected 1 to 64 characters" in run("add", "a b", code=2)
    made = json.loads(run("add", "bob", "--admin", "--json"))
    listed = run("list")
    assert "alice" in listed
    assert "bob (admin)" in listed
    assert not any(each in listed for each in (secret, made["key"], record.sha256))
    assert record.sha256 not in run("list", "--json")
    assert "revoked" in run("revoke", "alice")
    assert "no key 'alice'" in run("revoke", "alice", code=2)
    assert [each.id for each in key_file.read(Path(path))] == ["bob"]
