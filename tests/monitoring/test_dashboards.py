"""Dashboards as Grafana reads them: its own types where npm has brought them, and the layout."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.promql import DASHBOARDS, ROOT, panels

SCHEMA = ROOT / "build" / "grafana" / "node_modules"
TYPES = SCHEMA / "@grafana" / "schema" / "dist" / "types" / "raw" / "dashboard" / "x" / "types.gen"
NODE = shutil.which("node")
PLAIN = """
// An enumeration of strings as its strings, as JSON has them.
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
    : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
"""
needs_types = pytest.mark.skipif(
    NODE is None or not SCHEMA.is_dir(), reason="Grafana's types are not there: make monitoring brings them"
)


def loaded(path: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return dashboard


def compiled(folder: Path, boards: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """TypeScript's judgement of these dashboards, by name, as JSON."""
    types = os.path.relpath(TYPES, folder)
    for name, text in boards.items():
        (folder / f"{name}.ts").write_text(
            f"import type {{ Dashboard }} from './{types}';\n{PLAIN}export const board: Plain<Dashboard> = {text};\n",
            encoding="utf-8",
        )
    options = ("--noEmit", "--strict", "--skipLibCheck")
    command = [str(NODE), str(SCHEMA / "typescript" / "bin" / "tsc"), *options, *(f"{name}.ts" for name in boards)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@needs_types
def test_grafana_has_every_field(tmp_path: Path) -> None:
    done = compiled(tmp_path, {path.stem: path.read_text(encoding="utf-8") for path in DASHBOARDS})
    assert done.returncode == 0, done.stdout
    text = DASHBOARDS[0].read_text(encoding="utf-8")
    wrong = {
        "field": text.replace('"gridPos"', '"gridPosition"'),
        "value": text.replace('"mode": "absolute"', '"mode": "relative"'),
    }
    assert "relative" in wrong["value"]
    for name, changed in wrong.items():
        assert compiled(tmp_path, {name: changed}).returncode != 0, name


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_layout(path: Path) -> None:
    dashboard = loaded(path)
    assert dashboard["uid"] == f"cosyserve-{path.stem}"
    assert dashboard["tags"] == ["cosyserve"]
    ids = [panel["id"] for panel in panels(dashboard)]
    assert len(ids) == len(set(ids))
    taken = set[tuple[int, int]]()
    for panel in panels(dashboard):
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_asks_a_source_that_is_provisioned(path: Path) -> None:
    for panel in panels(loaded(path)):
        if panel["type"] in ("row", "alertlist"):
            continue
        source = panel["datasource"]
        assert (source["type"], source["uid"]) in (("prometheus", "${datasource}"), ("tempo", "tempo"))
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))
        for target in panel["targets"]:
            variables = set(re.findall(r"\$(\w+)", target.get("expr", "")))
            assert variables <= {"__rate_interval", "__range", "key", "tenant"}
