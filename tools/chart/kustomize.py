"""The Kustomize base, which is the chart rendered with `k8s/kustomize/values.yaml`: a file for each
kind, without a namespace, which an overlay sets.
"""

import re
from collections import defaultdict
from pathlib import Path

import yaml

from tools.chart.rendering import ROOT, Manifest, manifests, rendered

BASE = ROOT / "k8s" / "kustomize" / "base"
VALUES = BASE.parent / "values.yaml"
RELEASE = "cosyserve"
_HEAD = "# Made by make kustomize from k8s/chart and k8s/kustomize/values.yaml: change those.\n"
_HELM_ONLY = "app.kubernetes.io/managed-by"


def base_files() -> dict[str, str]:
    """The text of each file of the base by its name. Raises ChartError."""
    by_kind: dict[str, list[Manifest]] = defaultdict(list)
    for manifest in manifests(rendered(VALUES, "--no-hooks", release=RELEASE)):
        del manifest["metadata"]["namespace"], manifest["metadata"]["labels"][_HELM_ONLY]
        by_kind[manifest["kind"]].append(manifest)
    files = {f"{_dashed(kind)}.yaml": yaml.safe_dump_all(by_kind[kind], sort_keys=False) for kind in sorted(by_kind)}
    base = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(files)}
    files["kustomization.yaml"] = yaml.safe_dump(base, sort_keys=False)
    return {name: _HEAD + text for name, text in files.items()}


def write_base(folder: Path = BASE) -> None:
    """Replace the base."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.yaml"):
        old.unlink()
    for name, text in base_files().items():
        (folder / name).write_text(text, encoding="utf-8")


def outdated(folder: Path = BASE) -> list[str]:
    """Names of files that are not as the chart makes them, that are missing, or that are left
    over.
    """
    made = base_files()
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))


def _dashed(kind: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()
