"""JSON Schemas of custom resources, made of the types that npm's @kubernetes-models/* publish,
which are generated from the Go types of each project. `make check-chart` installs the packages.
"""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosyserve.errors import SettingsError
from tools.chart.rendering import ROOT, Manifest

PACKAGES = ROOT / "build" / "crds"
_SECONDS = 120.0
_GROUPS = {
    "keda.sh": "keda",
    "gateway.networking.k8s.io": "gateway-api",
    "monitoring.coreos.com": "prometheus-operator",
    "gateway.envoyproxy.io": "envoy-gateway",
}
_OPTIONS = {
    "compilerOptions": {"module": "nodenext", "moduleResolution": "nodenext", "target": "es2022", "skipLibCheck": True}
}


@dataclass(frozen=True)
class Kind:
    """A custom resource."""

    version: str
    """As in apiVersion: group/version."""
    name: str

    @property
    def module(self) -> str:
        """The module of npm that has its type, its class and what checks a value of it."""
        return f"@kubernetes-models/{_GROUPS[self.version.partition('/')[0]]}/{self.version}/{self.name}"


def kind_of(manifest: Manifest) -> Kind:
    return Kind(manifest["apiVersion"], manifest["kind"])


def has_schema(manifest: Manifest) -> bool:
    """Whether one of the packages has its kind's group."""
    return manifest["apiVersion"].partition("/")[0] in _GROUPS


def installed() -> bool:
    """Whether `make check-chart` has fetched the packages."""
    return (PACKAGES / ".ready").exists()


@cache
def schema(kind: Kind) -> dict[str, Any]:
    """The JSON Schema of a kind, which refuses fields that it does not have. Raises SettingsError
    without the packages, or for a kind that they lack.
    """
    if not installed():
        raise SettingsError("the schemas of custom resources are not here: make check-chart fetches them")
    folder = PACKAGES / "schemas" / kind.version.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{kind.name}.json"
    if not kept.exists():
        # One program for each kind: types of equal names in two packages would be taken for one.
        source, options = folder / f"{kind.name}.ts", folder / f"{kind.name}.tsconfig.json"
        imported = f'import type {{ I{kind.name} }} from "{kind.module}";'
        source.write_text(f"{imported}\nexport type Root = I{kind.name};\n", encoding="utf-8")
        options.write_text(json.dumps({**_OPTIONS, "files": [source.name]}), encoding="utf-8")
        made = folder / f"{kind.name}.json.part"
        generator = "node_modules/ts-json-schema-generator/bin/ts-json-schema-generator.js"
        arguments: list[str | Path] = ["--path", source, "--tsconfig", options, "--type", "Root", "--out", made]
        _node([generator, *arguments], f"{kind.version} {kind.name}")
        made.replace(kept)
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def refused(documents: Iterable[Manifest]) -> list[str]:
    """What the packages' own validators say: patterns, ranges and choices, which types have not.
    They let unknown fields pass.
    """
    given = [{"module": kind_of(each).module, "kind": each["kind"], "resource": each} for each in documents]
    script = Path(__file__).with_name("validators.mjs")
    return list(json.loads(_node([script], "validators", json.dumps({"folder": str(PACKAGES), "given": given}))))


def _node(arguments: list[str | Path], what: str, text: str = "") -> str:
    command = ["node", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=PACKAGES, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise SettingsError(f"{what}: {done.stderr.strip()[-1000:]}")
    return done.stdout
