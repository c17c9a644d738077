"""Custom resources by the types of their projects (make check-chart fetches them), and whether the
check itself would notice a misspelt field.
"""

import copy

import pytest

from tests.unit.chart.manifests_of import SET_NAMES, documents, needs_helm
from tools.chart import crd_schemas, custom_resources
from tools.chart.rendering import examples

needs_types = pytest.mark.skipif(not crd_schemas.installed(), reason="make check-chart has not fetched the types")
KINDS = {"ScaledObject", "HTTPRoute", "GRPCRoute", "BackendTLSPolicy", "PodMonitor", "PrometheusRule"}


def custom(name: str = "many") -> dict[str, dict]:
    return {each["kind"]: each for each in documents(name) if crd_schemas.has_schema(each)}


@needs_helm
def test_the_set_of_many_has_every_custom_kind_of_the_chart() -> None:
    assert set(custom()) == KINDS
    assert {kind for name in SET_NAMES for kind in custom(name)} == KINDS


def test_every_field_is_misspelt_once_and_nothing_else_changes() -> None:
    given = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "a", "labels": {"free": "yes"}},
        "spec": {"triggers": [{"type": "cpu", "metadata": {"value": "70"}}]},
    }
    kept = copy.deepcopy(given)
    changed = {".".join(map(str, path)): document for path, document in custom_resources.misspelt(given)}
    assert set(changed) == {
        "metadata.labels",
        "spec",
        "spec.triggers",
        "spec.triggers.0.type",
        "spec.triggers.0.metadata",
        "spec.triggers.0.metadata.value",
    }
    assert changed["spec.triggers.0.metadata.value"]["spec"] == {
        "triggers": [{"type": "cpu", "metadata": {"valuex": "70"}}]
    }
    assert given == kept
    assert custom_resources.unnoticed(given, lambda _: []) == list(changed)


@needs_helm
@needs_types
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_misspelt_field_of_each_kind_is_refused(kind: str) -> None:
    document = custom()[kind]
    assert custom_resources.faults([document]) == []
    assert custom_resources.unnoticed(document) == []


@needs_helm
@needs_types
def test_values_of_a_wrong_form_are_refused() -> None:
    """Which types do not say, and the packages' own validators do."""
    route = copy.deepcopy(custom()["HTTPRoute"])
    route["spec"]["rules"][0]["timeouts"]["request"] = "for ever"
    assert custom_resources.field_faults([route]) == []
    (fault,) = custom_resources.faults([route])
    assert "request" in fault
    scaled = copy.deepcopy(custom()["ScaledObject"])
    scaled["spec"]["maxReplicaCount"] = "4"
    assert any("maxReplicaCount" in fault for fault in custom_resources.field_faults([scaled]))


@needs_types
def test_the_examples_fit() -> None:
    assert [fault for each in examples().values() for fault in custom_resources.faults(each)] == []
