"""Pods reach each other on the ways of the pipeline, and nothing else but names, traces, metrics
and the object store.
"""

from typing import Any

import pytest

from tests.unit.chart.manifests_of import (
    SERVICES,
    SET_NAMES,
    STAGES,
    by_name,
    container,
    documents,
    needs_helm,
    with_set,
)

pytestmark = needs_helm
WAYS = {"gateway": {"orchestrator"}, "orchestrator": set(STAGES)} | {stage: set() for stage in STAGES}
PROMETHEUS = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}


def matching(peer: dict[str, Any], deployments: dict[str, dict[str, Any]]) -> set[str]:
    """The services of this release whose pods a peer names."""
    if set(peer) != {"podSelector"}:
        return set()
    labels = peer["podSelector"]["matchLabels"]
    assert labels["app.kubernetes.io/instance"] == "tts"
    found = {
        name: deployment["spec"]["template"]["metadata"]["labels"].items() for name, deployment in deployments.items()
    }
    return {name for name, have in found.items() if labels.items() <= have}


def rules(policy: dict[str, Any], direction: str) -> list[tuple[set[Any], list[dict[str, Any]]]]:
    """Ports and peers of each rule; no peers: all."""
    end = {"ingress": "from", "egress": "to"}[direction]
    return [({port["port"] for port in rule["ports"]}, rule.get(end, [])) for rule in policy["spec"].get(direction, [])]


@pytest.mark.parametrize("name", SET_NAMES)
def test_each_service_calls_the_next_ones_alone(name: str) -> None:
    given = documents(name)
    deployments, policies = by_name("Deployment", given), by_name("NetworkPolicy", given)
    for service in SERVICES:
        policy = policies[service]["spec"]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert policy["podSelector"]["matchLabels"] == deployments[service]["spec"]["selector"]["matchLabels"]
        called: set[str] = set()
        for ports, peers in rules(policies[service], "egress"):
            for peer in peers:
                names = matching(peer, deployments)
                called |= names
                for target in names:
                    assert ports == {container(deployments[target])["ports"][0]["containerPort"]}
        assert called == WAYS[service]


def test_only_the_orchestrator_reaches_the_stages() -> None:
    given = documents("many")
    deployments, policies = by_name("Deployment", given), by_name("NetworkPolicy", given)
    for stage in STAGES:
        calls, metrics = rules(policies[stage], "ingress")
        assert calls[0] == {"grpc"}
        assert [matching(peer, deployments) for peer in calls[1]] == [{"orchestrator"}]
        assert metrics == ({"health"}, [PROMETHEUS])


def test_callers_are_all_or_those_that_are_named() -> None:
    for service, port in (("orchestrator", "grpc"), ("gateway", "http")):
        assert rules(by_name("NetworkPolicy", documents())[service], "ingress")[0] == ({port}, [])
        named = rules(by_name("NetworkPolicy", documents("many"))[service], "ingress")[0]
        envoy = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "envoy-gateway-system"}}}
        assert envoy in named[1]
        deployments = by_name("Deployment", documents("many"))
        ours = set().union(*(matching(peer, deployments) for peer in named[1]))
        assert ours == ({"gateway"} if service == "orchestrator" else set())


def test_what_leaves_is_names_traces_and_the_object_store() -> None:
    policies = by_name("NetworkPolicy", documents("many"))
    for service in SERVICES:
        outside = [
            (ports, peers)
            for ports, peers in rules(policies[service], "egress")
            if not any(set(peer) == {"podSelector"} for peer in peers)
        ]
        dns, traces, *store = outside
        assert dns[0] == {53}
        assert dns[1][0]["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
        assert traces[0] == {4317}
        assert traces[1] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observability"}}}]
        assert store == ([({443}, [])] if service in STAGES else [])
    quiet = by_name("NetworkPolicy", documents("tls"))
    assert {len(rules(quiet[stage], "egress")) for stage in STAGES} == {1}


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://collector:4317", 4317), ("https://collector.example", 4317), ("http://[fd00::1]:4318/v1", 4318)],
)
def test_the_port_of_the_collector_is_that_of_the_endpoint(endpoint: str, port: int) -> None:
    policies = by_name("NetworkPolicy", with_set(f"telemetry.otlpEndpoint={endpoint}"))
    assert rules(policies["llm"], "egress")[1] == ({port}, [])


def test_policies_can_be_left_out() -> None:
    assert not by_name("NetworkPolicy", with_set("networkPolicies.enabled=false"))
