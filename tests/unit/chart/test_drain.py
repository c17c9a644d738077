"""A pod that is asked to end finishes what it speaks: every wait is longer than the one inside it,
and no autoscaler, rollout or drained node hurries it.
"""

import pytest

from cosyserve.settings import load
from tests.unit.chart.manifests_of import (
    SERVICES,
    SET_NAMES,
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

pytestmark = needs_helm


@pytest.mark.parametrize("name", SET_NAMES)
def test_each_pod_waits_longer_than_the_longest_utterance(name: str) -> None:
    deployments = by_name("Deployment", documents(name))
    settings = {
        service: load(SETTINGS[service], f"COSYSERVE_{service.upper()}_", environment(deployments[service]))
        for service in SERVICES
    }
    longest = max(settings["orchestrator"].max_request_seconds, settings["orchestrator"].max_stream_seconds)
    assert longest == (300 if name == "cpu-demo" else 1500)
    for service, deployment in deployments.items():
        sleep, seconds = container(deployment)["lifecycle"]["preStop"]["exec"]["command"]
        assert sleep == "sleep"
        assert settings[service].drain_seconds > longest
        grace = pod(deployment)["terminationGracePeriodSeconds"]
        # What `cosyserve.rpc.server` may need behind the drain: refusing, and closing the engine.
        assert grace >= int(seconds) + settings[service].drain_seconds + 10, service


def test_the_longest_utterance_has_one_value() -> None:
    deployments = by_name("Deployment", with_set("longestUtteranceSeconds=3500"))
    variables = environment(deployments["orchestrator"])
    assert variables["COSYSERVE_ORCHESTRATOR_MAX_STREAM_SECONDS"] == "3500"
    assert environment(deployments["gateway"])["COSYSERVE_GATEWAY_DRAIN_SECONDS"] == "3515"
    load(SETTINGS["gateway"], "COSYSERVE_GATEWAY_", environment(deployments["gateway"]))
    shorter = by_name("Deployment", with_set("services.orchestrator.settings.MAX_STREAM_SECONDS=100"))
    assert environment(shorter["orchestrator"])["COSYSERVE_ORCHESTRATOR_MAX_STREAM_SECONDS"] == "100"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("services.orchestrator.settings.MAX_STREAM_SECONDS=14400", "longestUtteranceSeconds"),
        ("services.orchestrator.settings.MAX_REQUEST_SECONDS=1500.5", "longestUtteranceSeconds"),
        ("services.llm.settings.DRAIN_SECONDS=1", "longestUtteranceSeconds"),
        ("longestUtteranceSeconds=4000", "longestUtteranceSeconds"),
        ("preStopSeconds=0", "preStopSeconds"),
    ],
)
def test_what_would_cut_an_utterance_is_refused(setting: str, complaint: str) -> None:
    assert complaint in refusal("access.insecure=true", setting)


def test_a_rollout_ends_no_pod_before_its_successor_serves() -> None:
    for service, deployment in by_name("Deployment", documents()).items():
        strategy = deployment["spec"]["strategy"]["rollingUpdate"]
        assert strategy == {"maxSurge": 1, "maxUnavailable": 0}, service
        assert deployment["spec"]["minReadySeconds"] >= 5
    one_gpu = by_name("Deployment", documents("one-gpu"))
    assert one_gpu["llm"]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert "rollout" in refusal("access.insecure=true", "services.llm.rollout.maxSurge=0")


@pytest.mark.parametrize("name", SET_NAMES)
def test_a_node_is_drained_of_one_pod_of_a_service_at_a_time(name: str) -> None:
    deployments = by_name("Deployment", documents(name))
    budgets = by_name("PodDisruptionBudget", documents(name))
    assert set(budgets) == set(SERVICES)
    for service, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        chosen = budget["spec"]["selector"]["matchLabels"]
        assert chosen == deployments[service]["spec"]["selector"]["matchLabels"]


def test_pods_are_spread_over_zones_and_nodes() -> None:
    for deployment in by_name("Deployment", documents()).values():
        spread = pod(deployment)["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        for each in spread:
            assert each["labelSelector"]["matchLabels"].items() <= labels.items()
            assert each["whenUnsatisfiable"] == "ScheduleAnyway"
