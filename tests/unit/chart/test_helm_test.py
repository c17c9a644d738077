"""The pod of `helm test` runs a command of ours with options that it knows, against ports of the
release.
"""

from typing import Any

import pytest

from cosyserve import speech_check
from tests.unit.chart.manifests_of import by_name, documents, needs_helm, with_set

pytestmark = needs_helm


def speaking(given: list[dict[str, Any]]) -> dict[str, Any]:
    return by_name("Pod", given)["speech-test"]


@pytest.mark.parametrize("name", ["cpu-demo", "many"])
def test_it_speaks_over_both_doors(name: str) -> None:
    only = speaking(documents(name))["spec"]["containers"][0]
    assert only["command"] == ["python", "-m", speech_check.__name__]
    options = speech_check.parser().parse_args(only["args"])
    services = by_name("Service", documents(name))
    ports = {service: services[service]["spec"]["ports"][0]["port"] for service in ("orchestrator", "gateway")}
    assert options.server == f"tts-orchestrator:{ports['orchestrator']}"
    scheme = "https" if name == "many" else "http"
    assert options.http == f"{scheme}://tts-gateway:{ports['gateway']}"
    # The image with the client and without what only an engine needs.
    assert "-orchestrator:" in only["image"]
    assert by_name("NetworkPolicy", documents(name))["speech-test"]["spec"]["podSelector"]["matchLabels"].items() <= (
        speaking(documents(name))["metadata"]["labels"].items()
    )


def test_it_has_a_key_and_the_ca_where_there_are_some() -> None:
    pod = speaking(documents("many"))
    only, volumes = pod["spec"]["containers"][0], {each["name"]: each for each in pod["spec"]["volumes"]}
    options = speech_check.parser().parse_args(only["args"])
    mounts = {mount["name"]: mount["mountPath"] for mount in only["volumeMounts"]}
    assert str(options.api_key_file) == f"{mounts['key']}/api-key"
    assert volumes["key"]["secret"]["secretName"] == "speech-test-key"
    assert only["env"] == [{"name": "COSYSERVE_TLS_CA", "value": f"{mounts['tls']}/ca.crt"}]
    assert volumes["tls"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert "env" not in speaking(documents())["spec"]["containers"][0]


def test_it_is_a_hook_that_ends() -> None:
    pod = speaking(documents())
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("setting", ["access.insecure=false,access.secret=keys", "test.enabled=false"])
def test_without_a_key_or_on_request_there_is_none(setting: str) -> None:
    assert not by_name("Pod", with_set(setting))
    assert "speech-test" not in by_name("NetworkPolicy", with_set(setting))
