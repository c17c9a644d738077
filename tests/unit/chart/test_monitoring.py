"""Alerts and dashboards of the chart are those of k8s/alerts and k8s/dashboards."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.chart.manifests_of import SET_NAMES, by_name, documents, needs_helm, refusal
from tools.chart.rendering import CHART, ROOT, helm

pytestmark = needs_helm
RULES = {path.stem: path for path in (ROOT / "k8s" / "alerts").glob("*.yaml")}
DASHBOARDS = {path.stem: path for path in (ROOT / "k8s" / "dashboards").glob("*.json")}


def dashboards(given: list[Any]) -> dict[str, Any]:
    found = by_name("ConfigMap", given)
    return {name.removeprefix("dashboard-"): each for name, each in found.items() if name.startswith("dashboard-")}


def test_they_are_the_files_of_this_repository() -> None:
    given = documents("many")
    rules = by_name("PrometheusRule", given)
    assert rules.keys() == RULES.keys() == {"recording", "alerts"}
    for name, path in RULES.items():
        assert rules[name]["spec"] == yaml.safe_load(path.read_text(encoding="utf-8"))
        assert rules[name]["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    boards = dashboards(given)
    assert boards.keys() == DASHBOARDS.keys()
    for name, path in DASHBOARDS.items():
        assert boards[name]["data"] == {f"cosyserve-{path.name}": path.read_text(encoding="utf-8")}
        assert boards[name]["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert boards[name]["metadata"]["annotations"] == {"grafana_folder": "cosyserve"}


@pytest.mark.parametrize("name", [name for name in SET_NAMES if name != "many"])
def test_they_are_off_unless_asked_for(name: str) -> None:
    assert by_name("PrometheusRule", documents(name)) == dashboards(documents(name)) == {}


def test_a_package_has_them_without_the_repository(tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        packed = {member.name: member for member in archive.getmembers()}
        for folder, paths in (("files", RULES), ("files/dashboards", DASHBOARDS)):
            for path in paths.values():
                member = archive.extractfile(packed[f"cosyserve/{folder}/{path.name}"])
                assert member is not None
                assert member.read() == path.read_bytes()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("monitoring.rule.enabled=true", "rule"),
        ("monitoring.rules.label=x", "label"),
        ("monitoring.dashboards.enabled=1", "boolean"),
        ("monitoring.dashboards.labels=null", "labels"),
    ],
)
def test_what_is_misspelt_is_refused(setting: str, said: str) -> None:
    assert said in refusal("access.insecure=true", setting)
