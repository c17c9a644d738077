"""The chart through the real helm: its sets of values, lint, manifests."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cosyserve.errors import SettingsError

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "k8s" / "chart"
SETS = tuple(sorted((CHART / "ci").glob("*-values.yaml")))
"""Complete sets of values, each of which installs."""
RELEASE, NAMESPACE = "tts", "speech"
_SECONDS = 60.0
Manifest = dict[str, Any]


class ChartError(Exception):
    """helm refuses the chart or the values, with its own words."""


def helm_program() -> str | None:
    """$HELM, else helm of PATH; None if there is none."""
    return os.environ.get("HELM") or shutil.which("helm")


def helm(*arguments: str | Path) -> str:
    """Standard output of a run. Raises ChartError with what helm says, SettingsError without
    helm.
    """
    program = helm_program()
    if program is None:
        raise SettingsError("helm is neither on PATH nor named by HELM")
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise ChartError(f"helm {arguments[0]}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def lint(values: Path) -> None:
    """Raises ChartError for an error or a warning."""
    helm("lint", "--strict", CHART, "--values", values)


def rendered(values: Path, *more: str, release: str = RELEASE) -> str:
    """Manifests as one stream of YAML; more: further arguments of helm. Raises ChartError."""
    return helm("template", release, CHART, "--namespace", NAMESPACE, "--values", values, *more)


def manifests(text: str) -> list[Manifest]:
    """The documents of a stream that are not empty."""
    return [document for document in yaml.safe_load_all(text) if document]


def examples(folders: Sequence[Path] = (ROOT / "k8s" / "examples",)) -> dict[Path, list[Manifest]]:
    """The manifests of each example by its file."""
    files = [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]
    return {path: manifests(path.read_text(encoding="utf-8")) for path in files}
