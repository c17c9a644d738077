"""The examples fit what they stand next to: services and ports of a release, options and voices of
ours, pods that Kubernetes would take.
"""

from typing import Any

import pytest

from cosyserve.settings import load
from services.gateway.settings import GatewaySettings
from tests.unit.chart.manifests_of import by_name, documents, needs_helm
from tools.chart import known_kinds
from tools.chart.rendering import ROOT, examples

FOLDER = ROOT / "k8s" / "examples"
GIVEN = examples()


def as_pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize("path", list(GIVEN), ids=lambda path: path.name)
def test_manifests_of_kubernetes_own_kinds_fit_its_schemas(path: Any) -> None:
    assert GIVEN[path]
    assert known_kinds.faults(GIVEN[path]) == []


def test_kserve_runs_the_gateway_with_settings_it_knows() -> None:
    (service,) = GIVEN[FOLDER / "kserve.yaml"]
    predictor = service["spec"]["predictor"]
    own = {"minReplicas", "maxReplicas", "timeout", "autoScaling"}
    assert known_kinds.faults([as_pod({key: value for key, value in predictor.items() if key not in own})]) == []
    (container,) = predictor["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    settings = load(GatewaySettings, "COSYSERVE_GATEWAY_", variables)
    assert predictor["terminationGracePeriodSeconds"] > settings.drain_seconds + 5 > 1500
    assert predictor["timeout"] > settings.drain_seconds


@needs_helm
def test_kserve_calls_the_orchestrators_of_a_release_and_scales_as_the_chart_does() -> None:
    (service,) = GIVEN[FOLDER / "kserve.yaml"]
    (container,) = service["spec"]["predictor"]["containers"]
    address = next(entry["value"] for entry in container["env"] if entry["name"].endswith("_ORCHESTRATOR"))
    name, _, port = address.removeprefix("dns:///tts-").partition(".speech:")
    assert by_name("Service", documents())[name]["spec"]["ports"][0]["port"] == int(port)
    (metric,) = service["spec"]["predictor"]["autoScaling"]["metrics"]
    trigger = by_name("ScaledObject", documents("many"))["gateway"]["spec"]["triggers"][-1]["metadata"]
    selector = ',app_kubernetes_io_instance="tts"'
    assert metric["external"]["metric"]["query"] == trigger["query"].replace(selector, "")


@needs_helm
def test_the_worker_of_dynamo_calls_rivas_api_of_a_release() -> None:
    (graph,) = GIVEN[FOLDER / "dynamo.yaml"]
    worker = next(each for each in graph["spec"]["components"] if each["name"] == "tts")
    template = worker["podTemplate"]["spec"]
    assert known_kinds.faults([as_pod(template)]) == []
    (container,) = template["containers"]
    options = dict(zip(container["args"][::2], container["args"][1::2], strict=True))
    name, _, port = options["--nim-server"].removeprefix("tts-").partition(".speech:")
    assert by_name("Service", documents())[name]["spec"]["ports"][0]["port"] == int(port)
    assert "nvidia.com/gpu" not in str(worker)
