"""The entrance: routes that no time limit of a proxy ends, with TLS on the way to the pods."""

import pytest

from tests.unit.chart.manifests_of import by_name, container, documents, needs_helm, refusal, with_set
from tools.chart.rendering import ROOT, examples

pytestmark = needs_helm


def test_http_lasts_as_long_as_the_speech() -> None:
    (rule,) = by_name("HTTPRoute", documents("many"))["gateway"]["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    (target,) = rule["backendRefs"]
    service = by_name("Service", documents("many"))["gateway"]
    assert target == {"name": "tts-gateway", "port": service["spec"]["ports"][0]["port"]}


def test_every_grpc_method_reaches_the_orchestrators() -> None:
    """Ours, Riva's and CosyVoice's: no method is chosen."""
    (rule,) = by_name("GRPCRoute", documents("many"))["orchestrator"]["spec"]["rules"]
    assert rule == {"backendRefs": [{"name": "tts-orchestrator", "port": 50051}]}


@pytest.mark.parametrize("service", ["gateway", "orchestrator"])
def test_the_entrance_encrypts_where_the_pods_do(service: str) -> None:
    policy = by_name("BackendTLSPolicy", documents("many"))[service]["spec"]
    assert policy["targetRefs"] == [{"group": "", "kind": "Service", "name": f"tts-{service}"}]
    assert policy["validation"]["hostname"] == f"tts-{service}"
    assert policy["validation"]["caCertificateRefs"] == [{"group": "", "kind": "ConfigMap", "name": "speech-ca"}]
    plain = with_set("routes.http.enabled=true,routes.http.parents[0].name=public")
    assert not by_name("BackendTLSPolicy", plain)


def test_routes_that_lead_nowhere_are_refused() -> None:
    for kind in ("http", "grpc"):
        assert f"routes.{kind}.parents" in refusal("access.insecure=true", f"routes.{kind}.enabled=true")
    route = "routes.http.enabled=true,routes.http.parents[0].name=public"
    assert "routes.caConfigMap" in refusal("access.insecure=true", f"tls.secret=speech-tls,{route}")


def test_the_example_of_envoy_belongs_to_the_routes_and_ends_no_speech() -> None:
    given = {each["kind"]: each for each in examples()[ROOT / "k8s" / "examples" / "envoy-gateway.yaml"]}
    routes = {kind: by_name(kind, documents("many")) for kind in ("HTTPRoute", "GRPCRoute")}
    backend, client = given["BackendTrafficPolicy"]["spec"], given["ClientTrafficPolicy"]["spec"]
    for target in backend["targetRefs"]:
        assert target["name"].removeprefix("tts-") in routes[target["kind"]]
    assert backend["timeout"]["http"]["requestTimeout"] == backend["timeout"]["http"]["maxStreamDuration"] == "0s"
    # Later than the gateway closes a silent WebSocket, and the orchestrator a stream of text.
    assert client["timeout"]["http"]["streamIdleTimeout"] == "300s"
    listeners = {listener["name"]: listener for listener in given["Gateway"]["spec"]["listeners"]}
    for kind, name in (("HTTPRoute", "gateway"), ("GRPCRoute", "orchestrator")):
        spec = routes[kind][name]["spec"]
        (parent,) = spec["parentRefs"]
        assert parent["name"] == given["Gateway"]["metadata"]["name"]
        assert spec["hostnames"] == [listeners[parent["sectionName"]]["hostname"]]
    assert container(by_name("Deployment", documents("many"))["gateway"])["ports"][0]["name"] == "http"
