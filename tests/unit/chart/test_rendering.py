"""Every set of values renders, passes the schemas of Kubernetes, and speaks to the services in
variables that they know.
"""

from typing import Any

import pytest

from cosyserve.settings import load
from tests.unit.chart.manifests_of import (
    SERVICES,
    SET_NAMES,
    STAGES,
    by_name,
    container,
    documents,
    environment,
    needs_helm,
    pod,
    refusal,
    with_set,
)
from tests.unit.repository.test_images import SETTINGS
from tools.chart import known_kinds, policies
from tools.chart.rendering import CHART, lint

pytestmark = needs_helm


def service_links(services: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What the kubelet adds to every container for each Service with a cluster address, of a
    release that is named as the product is.
    """
    links = {}
    for name, service in services.items():
        port = service["spec"]["ports"][0]["port"]
        prefix = f"COSYSERVE_{name.upper().replace('-', '_')}"
        links |= {
            f"{prefix}_SERVICE_HOST": "10.0.0.7",
            f"{prefix}_SERVICE_PORT": str(port),
            f"{prefix}_SERVICE_PORT_GRPC": str(port),
            f"{prefix}_PORT": f"tcp://10.0.0.7:{port}",
            f"{prefix}_PORT_{port}_TCP": f"tcp://10.0.0.7:{port}",
            f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
            f"{prefix}_PORT_{port}_TCP_ADDR": "10.0.0.7",
        }
    return links


@pytest.mark.parametrize("name", SET_NAMES)
def test_lint_and_schemas_of_three_versions(name: str) -> None:
    lint(CHART / "ci" / f"{name}-values.yaml")
    assert len(known_kinds.VERSIONS) == 3
    assert known_kinds.faults(documents(name)) == []
    assert policies.skips_without_reason(documents(name)) == []


def test_a_misspelt_field_of_kubernetes_is_noticed() -> None:
    deployment = by_name("Deployment", documents())["llm"]
    wrong = {**deployment, "spec": {**deployment["spec"], "minReadySecond": 5}}
    assert len(known_kinds.faults([wrong])) == 3


@pytest.mark.parametrize("name", SET_NAMES)
@pytest.mark.parametrize("service", SERVICES)
def test_each_container_starts_with_settings_its_service_knows(name: str, service: str) -> None:
    given = documents(name)
    deployment = by_name("Deployment", given)[service]
    variables = environment(deployment) | service_links(by_name("Service", given))
    settings = load(SETTINGS[service], f"COSYSERVE_{service.upper()}_", variables)
    assert settings.listen == f"0.0.0.0:{container(deployment)['ports'][0]['containerPort']}"
    assert settings.health_listen == "0.0.0.0:8081"


def test_each_caller_finds_every_replica_behind_a_headless_service() -> None:
    given = documents()
    services, deployments = by_name("Service", given), by_name("Deployment", given)
    variables = environment(deployments["orchestrator"]) | environment(deployments["gateway"])
    for stage in STAGES:
        port = services[stage]["spec"]["ports"][0]["port"]
        assert variables[f"COSYSERVE_ORCHESTRATOR_{stage.upper()}"] == f"dns:///tts-{stage}:{port}"
    assert variables["COSYSERVE_GATEWAY_ORCHESTRATOR"] == "dns:///tts-orchestrator-pods:50051"
    for name in (*STAGES, "orchestrator-pods"):
        assert services[name]["spec"]["clusterIP"] == "None"
    for name in ("orchestrator", "gateway"):
        assert services[name]["spec"]["type"] == "ClusterIP"
    for name, service in services.items():
        labels = deployments[name.removesuffix("-pods")]["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("name", SET_NAMES)
def test_each_pod_is_locked_down(name: str) -> None:
    for service, deployment in by_name("Deployment", documents(name)).items():
        assert pod(deployment)["securityContext"]["runAsNonRoot"] is True, service
        assert pod(deployment)["automountServiceAccountToken"] is False, service
        assert pod(deployment)["serviceAccountName"] == f"tts-{service}"
        for each in (*pod(deployment).get("initContainers", []), *pod(deployment)["containers"]):
            assert each["securityContext"]["readOnlyRootFilesystem"] is True, service
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}, service
            assert each["resources"]["requests"], service
            assert each["resources"]["limits"], service


def test_each_pod_is_probed_by_its_own_health() -> None:
    for service, deployment in by_name("Deployment", documents()).items():
        only = container(deployment)
        assert only["readinessProbe"]["httpGet"] == {"port": "health", "path": "/readyz"}, service
        assert only["livenessProbe"]["httpGet"] == {"port": "health", "path": "/healthz"}, service
        # A stage may take this long to load; who waits for stages may not be restarted for that.
        started = "/readyz" if service in STAGES else "/healthz"
        assert only["startupProbe"]["httpGet"] == {"port": "health", "path": started}, service
        kind, health = only["ports"]
        assert health == {"name": "health", "containerPort": 8081}
        assert kind["name"] == ("http" if service == "gateway" else "grpc")


def test_a_stage_may_load_as_long_as_the_values_say() -> None:
    given = by_name("Deployment", with_set("services.llm.startupSeconds=1801"))
    probe = container(given["llm"])["startupProbe"]
    assert 1801 <= probe["periodSeconds"] * probe["failureThreshold"] < 1801 + probe["periodSeconds"]
    assert given["llm"]["spec"]["progressDeadlineSeconds"] > 1801


def test_wyoming_has_a_port_only_where_it_is_asked_for() -> None:
    given = with_set("services.gateway.wyomingPort=10200")
    service = by_name("Service", given)["gateway"]
    assert [port["port"] for port in service["spec"]["ports"]] == [8080, 10200]
    gateway = by_name("Deployment", given)["gateway"]
    assert {"name": "wyoming", "containerPort": 10200} in container(gateway)["ports"]
    assert environment(gateway)["COSYSERVE_GATEWAY_WYOMING_LISTEN"] == "0.0.0.0:10200"
    assert {"protocol": "TCP", "port": "wyoming"} in public_ports(by_name("NetworkPolicy", given)["gateway"])
    for document in documents():
        assert "wyoming" not in str(document).lower()


def public_ports(policy: dict[str, Any]) -> list[dict[str, Any]]:
    return policy["spec"]["ingress"][0]["ports"]


def test_nothing_is_installed_before_it_is_said_who_may_call() -> None:
    """Both ways out are named, and each of them is one; tokens in place of keys are a third."""
    said = refusal()
    assert "access.secret" in said
    assert "access.insecure=true" in said
    for way in ("access.secret=keys", "services.orchestrator.settings.JWT_ISSUER=https://id"):
        assert with_set(f"access.insecure=false,{way}")
    wyoming = "services.gateway.wyomingPort=10200"
    assert "access.wyomingSecret" in refusal("access.secret=keys", wyoming)
    assert with_set(f"access.insecure=false,access.secret=keys,{wyoming},access.wyomingSecret=key")
