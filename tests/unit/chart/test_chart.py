"""The chart renders, passes the schema of Kubernetes, and speaks to the services in variables they
know.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyserve.settings import load
from cosyserve.tls.certificate_files import CertificateFiles
from tests.unit.repository.test_images import SETTINGS

CHART = Path(__file__).parents[3] / "k8s" / "chart"
STAGES = ("frontend", "llm", "token2wav")
SERVICES = (*STAGES, "orchestrator", "gateway")
VALUES = [None, *sorted((CHART / "ci").glob("*.yaml"))]
HELM = os.environ.get("HELM") or shutil.which("helm")
pytestmark = pytest.mark.skipif(HELM is None, reason="helm is neither on PATH nor named by HELM")


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *map(str, arguments)], capture_output=True, text=True, timeout=60)


OPEN = ["--set", "access.insecure=true"]


def chosen(values: Path | None) -> list[str | Path]:
    """The defaults leave open who may call."""
    return [*OPEN] if values is None else ["--values", values]


def render(values: Path | None, release: str = "cosyserve") -> list[dict[str, Any]]:
    result = helm("template", release, CHART, *chosen(values))
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def named(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for document in documents if document["kind"] == kind}


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def service_links(release: str, services: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What the kubelet adds to every container for each Service with a cluster address."""
    links = {}
    for name, service in services.items():
        port = service["spec"]["ports"][0]["port"]
        prefix = name.upper().replace("-", "_")
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


@pytest.mark.parametrize("values", VALUES, ids=lambda values: values.stem if values else "defaults")
def test_lint_and_kubernetes_schema(values: Path | None, tmp_path: Path) -> None:
    lint = helm("lint", "--strict", CHART, *chosen(values))
    assert lint.returncode == 0, lint.stdout + lint.stderr
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(helm("template", "cosyserve", CHART, *chosen(values)).stdout)
    for version in ("1.30", "1.33"):
        check = [Path(sys.executable).with_name("kubernetes-validate"), "-k", version, "--strict", rendered]
        result = subprocess.run(check, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("values", VALUES, ids=lambda values: values.stem if values else "defaults")
@pytest.mark.parametrize("service", SERVICES)
def test_each_container_starts_with_settings_its_service_knows(values: Path | None, service: str) -> None:
    documents = render(values)
    deployment = named(documents, "Deployment")[f"cosyserve-{service}"]
    environment = {entry["name"]: entry["value"] for entry in container(deployment)["env"]}
    environment |= service_links("cosyserve", named(documents, "Service"))
    settings = load(SETTINGS[service], f"COSYSERVE_{service.upper()}_", environment)
    assert settings.listen == f"0.0.0.0:{container(deployment)['ports'][0]['containerPort']}"
    assert settings.drain_seconds < deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_orchestrator_finds_every_stage_behind_a_headless_service() -> None:
    documents = render(None, release="spoken")
    services = named(documents, "Service")
    environment = {
        entry["name"]: entry["value"]
        for entry in container(named(documents, "Deployment")["spoken-orchestrator"])["env"]
    }
    for stage in STAGES:
        service = services[f"spoken-{stage}"]
        assert service["spec"]["clusterIP"] == "None"
        assert (
            environment[f"COSYSERVE_ORCHESTRATOR_{stage.upper()}"]
            == f"dns:///spoken-{stage}:{service['spec']['ports'][0]['port']}"
        )
    assert services["spoken-orchestrator"]["spec"]["type"] == "ClusterIP"
    gateway = container(named(documents, "Deployment")["spoken-gateway"])["env"]
    assert {"name": "COSYSERVE_GATEWAY_ORCHESTRATOR", "value": "dns:///spoken-orchestrator:50051"} in gateway


def test_each_pod_is_locked_down_and_probed_by_its_own_health() -> None:
    for name, deployment in named(render(None), "Deployment").items():
        pod, only = deployment["spec"]["template"]["spec"], container(deployment)
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        assert only["securityContext"]["readOnlyRootFilesystem"] is True, name
        assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert only["resources"]["requests"], name
        assert only["resources"]["limits"], name
        assert only["readinessProbe"]["httpGet"] == {"port": "health", "path": "/readyz"}, name
        kind, health = only["ports"]
        assert health == {"name": "health", "containerPort": 8081}
        assert kind["name"] == ("http" if name.endswith("-gateway") else "grpc")
        assert {"name": f"{prefix_of(name)}HEALTH_LISTEN", "value": "0.0.0.0:8081"} in only["env"]


def prefix_of(deployment: str) -> str:
    return f"COSYSERVE_{deployment.rpartition('-')[2].upper()}_"


def test_only_the_orchestrator_reaches_the_stages() -> None:
    policies = named(render(None, release="spoken"), "NetworkPolicy")
    deployments = named(render(None, release="spoken"), "Deployment")
    assert set(policies) == {f"spoken-{stage}" for stage in STAGES}
    for name, policy in policies.items():
        pods = deployments[name]["spec"]["template"]
        chosen_pods = policy["spec"]["podSelector"]["matchLabels"]
        assert chosen_pods.items() <= pods["metadata"]["labels"].items()
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        (rule,) = policy["spec"]["ingress"]
        (caller,) = rule["from"]
        labels = caller["podSelector"]["matchLabels"]
        assert set(caller) == {"podSelector"}
        matching = [
            other
            for other, deployment in deployments.items()
            if labels.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert matching == ["spoken-orchestrator"]
        assert labels["app.kubernetes.io/instance"] == "spoken"
        assert rule["ports"] == [{"protocol": "TCP", "port": "grpc"}]
        assert "grpc" in [port["name"] for port in container(deployments[name])["ports"]]
    without = helm("template", "spoken", CHART, "--set", "networkPolicies=false")
    assert "NetworkPolicy" not in without.stdout


def test_certificates_are_mounted_where_the_settings_say() -> None:
    deployments = named(render(CHART / "ci" / "tls-values.yaml"), "Deployment")
    for name, deployment in deployments.items():
        service, only = name.rpartition("-")[2], container(deployment)
        settings = load(SETTINGS[service], prefix_of(name), {entry["name"]: entry["value"] for entry in only["env"]})
        (volume,) = (each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "tls")
        secret = "orchestrator-tls" if service == "orchestrator" else "speech-tls"
        assert volume["secret"] == {"secretName": secret, "defaultMode": 0o440}
        mount = {"name": "tls", "mountPath": "/etc/cosyserve/tls", "readOnly": True}
        assert mount in only["volumeMounts"]
        folder = Path(mount["mountPath"])
        names = ("tls.crt", "tls.key", "ca.crt")
        assert settings.served_files == CertificateFiles(*(folder / file for file in names))
        allowed = ("spiffe://cluster.local/ns/speech/sa/orchestrator",) if service in STAGES else ()
        assert settings.tls_client_names == allowed
        if service not in STAGES:
            assert settings.calls is not None
            assert settings.calls.files == settings.served_files
        assert "grpc" not in only["readinessProbe"]
    services = named(render(CHART / "ci" / "tls-values.yaml"), "Service").values()
    assert {service["spec"]["ports"][0]["appProtocol"] for service in services} == {"https"}
    for deployment in named(render(None), "Deployment").values():
        assert "TLS" not in str(container(deployment)["env"])


def test_the_keys_of_the_voices_are_the_frontends_alone() -> None:
    for name, deployment in named(render(CHART / "ci" / "hostpath-values.yaml"), "Deployment").items():
        expected = [{"secretRef": {"name": "speech-bucket"}}] if name == "cosyserve-frontend" else None
        assert container(deployment).get("envFrom") == expected, name
        assert "speech-bucket" not in str(container(deployment)["env"])
    for values in VALUES:
        if values is None or "hostpath" not in values.stem:
            assert not any("envFrom" in container(each) for each in named(render(values), "Deployment").values())


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("drainSeconds=0", "drainSeconds"),
        ("services.llm.replica=2", "replica"),
        ("services.narrator.port=1", "narrator"),
        ("model.claim=weights,model.hostPath=/srv", "model"),
        ("voices.secret=keys", "voices"),
        ("voices.secret=keys,voices.claim=voices", "voices"),
        ("voices.secret=Keys_1,voices.url=s3://bucket/voices", "voices"),
        ("tls.secret=Not_a_name", "secret"),
        ("tls.stageCallers={a b}", "stageCallers"),
        ("healthPort=80", "healthPort"),
    ],
)
def test_wrong_values_are_refused_by_name(setting: str, complaint: str) -> None:
    result = helm("template", "cosyserve", CHART, *OPEN, "--set", setting)
    assert result.returncode != 0
    assert complaint in result.stderr


def test_wyoming_has_a_port_only_where_it_is_asked_for() -> None:
    asked = helm("template", "cosyserve", CHART, *OPEN, "--set", "services.gateway.wyomingPort=10200")
    assert asked.returncode == 0, asked.stderr
    documents = [document for document in yaml.safe_load_all(asked.stdout) if document]
    service = named(documents, "Service")["cosyserve-gateway"]
    assert [port["port"] for port in service["spec"]["ports"]] == [8080, 10200]
    gateway = container(named(documents, "Deployment")["cosyserve-gateway"])
    assert {"name": "wyoming", "containerPort": 10200} in gateway["ports"]
    assert {"name": "COSYSERVE_GATEWAY_WYOMING_LISTEN", "value": "0.0.0.0:10200"} in gateway["env"]
    for document in render(None):
        assert "wyoming" not in str(document).lower()


def test_nothing_is_installed_before_it_is_said_who_may_call() -> None:
    """Both ways out are named, and each of them is one; tokens in place of keys are a third."""
    result = helm("template", "cosyserve", CHART)
    assert result.returncode != 0
    assert "access.secret" in result.stderr
    assert "access.insecure=true" in result.stderr
    for way in ("access.secret=keys", "access.insecure=true", "services.orchestrator.settings.JWT_ISSUER=https://id"):
        assert helm("template", "cosyserve", CHART, "--set", way).returncode == 0
    wyoming = "access.secret=keys,services.gateway.wyomingPort=10200"
    assert "access.wyomingSecret" in helm("template", "cosyserve", CHART, "--set", wyoming).stderr
    assert helm("template", "cosyserve", CHART, "--set", f"{wyoming},access.wyomingSecret=key").returncode == 0


def test_the_keys_are_the_orchestrators_alone_and_follow_their_secret() -> None:
    documents = render(CHART / "ci" / "gpu-values.yaml")
    for name, deployment in named(documents, "Deployment").items():
        volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
        assert ("keys" in volumes) == (name == "cosyserve-orchestrator"), name
        assert ("wyoming-key" in volumes) == (name == "cosyserve-gateway"), name
    deployment = named(documents, "Deployment")["cosyserve-orchestrator"]
    (mount,) = (each for each in container(deployment)["volumeMounts"] if each["name"] == "keys")
    assert "subPath" not in mount
    environment = {entry["name"]: entry["value"] for entry in container(deployment)["env"]}
    assert environment["COSYSERVE_ORCHESTRATOR_KEYS_FILE"] == mount["mountPath"] + "/keys.json"
    assert environment["COSYSERVE_ORCHESTRATOR_INSECURE"] == "false"


@pytest.mark.parametrize("way", ["access.secret=keys", "services.orchestrator.settings.JWT_ISSUER=https://id"])
def test_the_limits_of_a_key_or_token_are_divided_among_the_orchestrators(way: str) -> None:
    result = helm("template", "cosyserve", CHART, "--set", f"{way},services.orchestrator.replicas=3")
    documents = [document for document in yaml.safe_load_all(result.stdout) if document]
    environment = container(named(documents, "Deployment")["cosyserve-orchestrator"])["env"]
    assert {"name": "COSYSERVE_ORCHESTRATOR_LIMIT_PARTS", "value": "3"} in environment
