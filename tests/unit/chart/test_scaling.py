"""Each service is scaled by its own load: KEDA and HorizontalPodAutoscalers ask for the same."""

import re

import pytest
import yaml

from tests.unit.chart.manifests_of import (
    SERVICES,
    by_name,
    container,
    documents,
    environment,
    needs_helm,
    refusal,
    with_set,
)
from tools.chart.rendering import ROOT

pytestmark = needs_helm
SELECTOR = 'namespace="speech",app_kubernetes_io_instance="tts"'
METRICS = {
    "frontend": {"cosyserve_streams_active", "cosyserve_streams_limit"},
    "llm": {"cosyserve_llm_running", "cosyserve_llm_waiting", "cosyserve_llm_slots"},
    "token2wav": {"cosyserve_token2wav_pages_used", "cosyserve_token2wav_pages", "cosyserve_token2wav_slack_ratio"},
    "orchestrator": {"cosyserve_streams_active", "cosyserve_streams_limit"},
    "gateway": {"cosyserve_streams_active", "cosyserve_streams_limit"},
}


def prometheus_trigger(service: str) -> dict:
    triggers = by_name("ScaledObject", documents("many"))[service]["spec"]["triggers"]
    (trigger,) = (each for each in triggers if each["type"] == "prometheus")
    return trigger


@pytest.mark.parametrize("service", SERVICES)
def test_keda_scales_each_service_by_its_own_metrics(service: str) -> None:
    trigger = prometheus_trigger(service)
    query = trigger["metadata"]["query"]
    assert set(re.findall(r"cosyserve_\w+", query)) == METRICS[service]
    assert query.count(SELECTOR) == len(re.findall(r"cosyserve_\w+", query))
    if service in ("frontend", "orchestrator", "gateway"):
        assert query.count(f'service="{service}"') == 2
    assert trigger["metricType"] == "Value"
    # No series is a fault and not an idle service.
    assert trigger["metadata"]["ignoreNullValues"] == "false"


def test_what_computes_on_cpus_is_scaled_by_them_too() -> None:
    for service, scaled in by_name("ScaledObject", documents("many")).items():
        cpu = [trigger for trigger in scaled["spec"]["triggers"] if trigger["type"] == "cpu"]
        engines = service in ("llm", "token2wav")
        assert cpu == ([] if engines else [{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}])
        if not engines:
            deployment = by_name("Deployment", documents("many"))[service]
            assert "cpu" in container(deployment)["resources"]["requests"]


@pytest.mark.parametrize(("name", "kind"), [("many", "ScaledObject"), ("hpa", "HorizontalPodAutoscaler")])
def test_fewer_pods_come_slowly_and_one_by_one(name: str, kind: str) -> None:
    autoscalers = by_name(kind, documents(name))
    assert set(autoscalers) == set(SERVICES)
    for autoscaler in autoscalers.values():
        spec = autoscaler["spec"]
        behavior = spec["behavior"] if kind != "ScaledObject" else horizontal(spec)["behavior"]
        down, up = behavior["scaleDown"], behavior["scaleUp"]
        assert down["stabilizationWindowSeconds"] == 600
        assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 300}]
        assert up["stabilizationWindowSeconds"] == 0


def horizontal(spec: dict) -> dict:
    return spec["advanced"]["horizontalPodAutoscalerConfig"]


@pytest.mark.parametrize("name", ["many", "hpa"])
def test_an_upgrade_leaves_the_number_of_pods_to_the_autoscaler(name: str) -> None:
    deployments = by_name("Deployment", documents(name))
    assert not [service for service, each in deployments.items() if "replicas" in each["spec"]]
    fixed = with_set("services.llm.autoscaling.enabled=false", name)
    assert by_name("Deployment", fixed)["llm"]["spec"]["replicas"] == 1
    kind = "ScaledObject" if name == "many" else "HorizontalPodAutoscaler"
    assert "llm" not in by_name(kind, fixed)
    for service, each in by_name("Deployment", documents()).items():
        assert each["spec"]["replicas"] == 1, service


def test_limits_of_keys_are_divided_among_the_orchestrators_there_are() -> None:
    scaled = environment(by_name("Deployment", documents("many"))["orchestrator"])
    assert scaled["COSYSERVE_ORCHESTRATOR_LIMIT_PARTS_NAME"] == "tts-orchestrator-pods"
    assert "COSYSERVE_ORCHESTRATOR_LIMIT_PARTS" not in scaled
    for way in ("access.secret=keys", "services.orchestrator.settings.JWT_ISSUER=https://id"):
        fixed = with_set(f"{way},services.orchestrator.replicas=3")
        assert environment(by_name("Deployment", fixed)["orchestrator"])["COSYSERVE_ORCHESTRATOR_LIMIT_PARTS"] == "3"


def test_without_keda_an_adapter_serves_the_same_loads() -> None:
    """As external metrics, by the queries of KEDA, whose selector the adapter fills in."""
    (adapter,) = yaml.safe_load_all((ROOT / "k8s" / "examples" / "prometheus-adapter.yaml").read_text(encoding="utf-8"))
    rules = yaml.safe_load(adapter["data"]["config.yaml"])["externalRules"]
    by_metric = {rule["name"]["as"]: rule["metricsQuery"] for rule in rules}
    assert len(by_metric) == len(SERVICES)
    for service, autoscaler in by_name("HorizontalPodAutoscaler", documents("hpa")).items():
        *_, external = autoscaler["spec"]["metrics"]
        metric = external["external"]["metric"]
        keda = prometheus_trigger(service)["metadata"]["query"]
        assert by_metric[metric["name"]] == keda.replace(SELECTOR, "<<.LabelMatchers>>")
        assert metric["selector"] == {"matchLabels": {"app_kubernetes_io_instance": "tts"}}
        assert external["external"]["target"] == {"type": "Value", "value": "0.7"}


def test_without_an_adapter_engines_keep_their_number() -> None:
    given = with_set("autoscaling.externalMetrics=false", "hpa")
    autoscalers = by_name("HorizontalPodAutoscaler", given)
    assert set(autoscalers) == {"frontend", "orchestrator", "gateway"}
    for autoscaler in autoscalers.values():
        assert [metric["type"] for metric in autoscaler["spec"]["metrics"]] == ["Resource"]
    assert by_name("Deployment", given)["llm"]["spec"]["replicas"] == 1


def test_autoscalers_that_could_not_work_are_refused() -> None:
    assert "autoscaling.prometheus.address" in refusal("access.insecure=true", "autoscaling.kind=keda")
    assert "above max" in refusal("access.insecure=true", "services.llm.autoscaling.min=9")
    assert "target" in refusal("access.insecure=true", "services.llm.autoscaling.target=0.0")


def test_pod_monitors_scrape_the_plain_port_of_each_service() -> None:
    monitors, deployments = by_name("PodMonitor", documents("many")), by_name("Deployment", documents("many"))
    assert set(monitors) == set(SERVICES)
    for service, monitor in monitors.items():
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["path"]) == ("health", "/metrics")
        assert {"name": "health", "containerPort": 8081} in container(deployments[service])["ports"]
        assert monitor["spec"]["selector"] == deployments[service]["spec"]["selector"]
        # The label by which the queries above keep releases apart.
        assert monitor["spec"]["podTargetLabels"] == ["app.kubernetes.io/instance"]
        assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
