"""The Kustomize base is the chart, rendered: a copy that is left behind fails here."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.chart.manifests_of import SERVICES, needs_helm
from tools.chart import kustomize

pytestmark = needs_helm


def test_the_base_is_what_the_chart_renders() -> None:
    assert kustomize.outdated() == [], "make kustomize"


def test_a_change_is_noticed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    kustomize.write_base(base)
    assert kustomize.outdated(base) == []
    (base / "service.yaml").write_text("")
    (base / "left-over.yaml").write_text("")
    (base / "deployment.yaml").unlink()
    assert kustomize.outdated(base) == ["deployment.yaml", "left-over.yaml", "service.yaml"]


def test_it_is_whole_and_names_no_namespace_and_no_helm() -> None:
    listed = yaml.safe_load((kustomize.BASE / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in kustomize.BASE.iterdir()}
    given = [each for name in listed for each in yaml.safe_load_all((kustomize.BASE / name).read_text("utf-8"))]
    assert {each["metadata"]["name"] for each in given if each["kind"] == "Deployment"} == {
        f"cosyserve-{service}" for service in SERVICES
    }
    assert not [each for each in given if "namespace" in each["metadata"] or "helm" in str(each).lower()]


def test_kustomize_builds_it() -> None:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run([program, "kustomize", str(kustomize.BASE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(list(yaml.safe_load_all(done.stdout))) > 20
