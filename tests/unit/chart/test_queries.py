"""KEDA's queries against a real Prometheus: how many pods each service is given at three loads."""

import re
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.stacks.telemetry.made_series import Pods, Prometheus, Series, needs_prometheus, running, wanted_pods
from tests.unit.chart.manifests_of import SERVICES, by_name, documents, needs_helm

pytestmark = [needs_helm, needs_prometheus]
READY = {"frontend": 2, "llm": 2, "token2wav": 3, "orchestrator": 2, "gateway": 2}
LOADS = ("idle", "as aimed at", "full")
WANTED = {
    # At the least, unchanged within a tenth of the target, and pods * load / target rounded up.
    "frontend": (2, 2, 3),
    "llm": (2, 2, 5),
    "token2wav": (2, 3, 5),
    "orchestrator": (2, 2, 3),
    "gateway": (2, 2, 3),
}


def labels(release: str) -> dict[str, str]:
    """As a PodMonitor of the chart marks the series of a pod."""
    return {"namespace": "speech", "app_kubernetes_io_instance": release}


PODS = {f"tts-{service}-{number}": labels("tts") for service, count in READY.items() for number in range(count)}
OTHERS = {f"other-{service}-0": labels("other") for service in SERVICES}


def streams(service: str, active: float, limit: float) -> Series:
    of = f'{{service="{service}"}}'
    return {f"cosyserve_streams_active{of}": active, f"cosyserve_streams_limit{of}": limit}


def llm(running_now: float, waiting: float) -> Series:
    return {"cosyserve_llm_running": running_now, "cosyserve_llm_waiting": waiting, "cosyserve_llm_slots": 16}


def token2wav(used: float, slack: float) -> Series:
    pages = {"cosyserve_token2wav_pages_used": used, "cosyserve_token2wav_pages": 1000}
    return {**pages, "cosyserve_token2wav_slack_ratio": slack}


def exported(load: str) -> dict[str, Series]:
    """Each pod's series; another release in the namespace is always full."""
    idle, full = load == "idle", load == "full"
    engines = {
        "tts-llm-0": llm(*((1, 0) if idle else (16, 10) if full else (12, 0))),
        "tts-llm-1": llm(*((2, 0) if idle else (16, 8) if full else (11, 0))),
        # Half of the pages, but hardly any time left: the shorter of the two decides.
        "tts-token2wav-0": token2wav(*((100, 1.0) if idle else (500, 0.1) if full else (690, 0.6))),
        "tts-token2wav-1": token2wav(*((90, 1.0) if idle else (500, 0.0) if full else (700, 0.7))),
        "tts-token2wav-2": token2wav(*((0, 1.0) if idle else (500, 0.05) if full else (710, 0.5))),
        "other-llm-0": llm(16, 16),
        "other-token2wav-0": token2wav(1000, 0.0),
    }
    for service, limit in (("frontend", 32), ("orchestrator", 128), ("gateway", 1024)):
        share = 0.02 if idle else 1.0 if full else 0.7
        for number in range(READY[service]):
            # Unevenly: all pods together count.
            moved = (0.0 if idle or full else 0.1) * (1 if number else -1)
            engines[f"tts-{service}-{number}"] = streams(service, limit * (share + moved), limit)
        engines[f"other-{service}-0"] = streams(service, limit, limit)
    return engines


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(Pods(PODS | OTHERS), tmp_path_factory.mktemp("prometheus")) as server:
        yield server


def scaled(service: str) -> tuple[str, float, int, int]:
    """Query, target, fewest and most pods of a ScaledObject."""
    spec = by_name("ScaledObject", documents("many"))[service]["spec"]
    metadata = spec["triggers"][-1]["metadata"]
    return metadata["query"], float(metadata["threshold"]), spec["minReplicaCount"], spec["maxReplicaCount"]


def test_each_service_is_given_the_expected_pods_at_three_loads(prometheus: Prometheus) -> None:
    given: dict[str, list[int]] = {service: [] for service in SERVICES}
    for load in LOADS:
        prometheus.pods.export(exported(load))
        prometheus.scraped()
        for service in SERVICES:
            query, target, least, most = scaled(service)
            given[service].append(wanted_pods(prometheus.load(query), target, READY[service], least, most))
    assert {service: tuple(pods) for service, pods in given.items()} == WANTED


def test_an_engine_without_pages_is_scaled_by_its_slack(prometheus: Prometheus) -> None:
    slack = {f"tts-token2wav-{number}": {"cosyserve_token2wav_slack_ratio": 0.25} for number in range(3)}
    prometheus.pods.export(slack)
    prometheus.scraped()
    assert prometheus.load(scaled("token2wav")[0]) == pytest.approx(0.75)
    none = {
        pod: {**series, "cosyserve_token2wav_pages_used": 0, "cosyserve_token2wav_pages": 0}
        for pod, series in slack.items()
    }
    prometheus.pods.export(none)
    prometheus.scraped()
    assert prometheus.load(scaled("token2wav")[0]) == pytest.approx(0.75)


def test_no_series_and_no_limit_are_faults_and_not_idle_services(prometheus: Prometheus) -> None:
    """KEDA then reports an error, and the number of pods stays as it is."""
    prometheus.pods.export({"tts-orchestrator-0": streams("orchestrator", 0, 0)})
    prometheus.scraped()
    for service in SERVICES:
        with pytest.raises(ValueError, match=r"0 elements|nan"):
            prometheus.load(scaled(service)[0])


def test_the_queries_name_metrics_that_there_are() -> None:
    if find_spec("cosyserve.metrics") is None:
        pytest.skip("the names of the metrics are not in this tree")
    from cosyserve.metrics.names import ALL

    known = {metric.prometheus: metric.services for metric in ALL}
    for service in SERVICES:
        for name in re.findall(r"cosyserve_\w+", scaled(service)[0]):
            assert service in known[name], name
