"""`python -m tools.release.sbom CYCLONEDX_PY [--out DIR]`: a bill of materials in CycloneDX's JSON
for each distribution.

cyclonedx-py describes this environment, in which the developer's tools are too; what a distribution
does not need is left out here. The same environment gives the same bytes: no time, no serial number
and no path of this machine is in them. The weights of models are no part of a distribution.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release.version import ROOT

DISTRIBUTIONS = {"cosyserve": "cosyserve[audio]", "cosyserve-server": "cosyserve-server[cpu,jwt,words]"}
"""Distribution -> what is described of it."""
OURS = frozenset(DISTRIBUTIONS)
FORMAT = "1.6"
_VALID = (
    "import sys; from cyclonedx.schema import SchemaVersion; "
    "from cyclonedx.validation.json import JsonStrictValidator; "
    f"sys.exit(str(JsonStrictValidator(SchemaVersion.V{FORMAT.replace('.', '_')})"
    ".validate_str(sys.stdin.read()) or '') or None)"
)
Document = dict[str, Any]


class NotInstalled(Exception):
    """A requirement that this environment does not hold."""


def closure(root: str) -> Mapping[str, frozenset[str]]:
    """By canonical name, the names that it requires here, for `root` such as
    "cosyserve-server[cpu]" and all below it. Raises NotInstalled.
    """
    wanted, seen = [Requirement(root)], dict[str, set[str]]()
    known: dict[str, set[str]] = {}
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        asked = {"", *requirement.extras}
        fresh = asked - known.get(name, set())
        if not fresh:
            continue
        known.setdefault(name, set()).update(fresh)
        needed = seen.setdefault(name, set())
        for each in _requirements(name):
            if any(each.marker is None or each.marker.evaluate({"extra": extra}) for extra in fresh):
                wanted.append(each)
                needed.add(canonicalize_name(each.name))
    return {name: frozenset(needed - {name}) for name, needed in seen.items()}


def _requirements(name: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in metadata.distribution(name).requires or []]
    except metadata.PackageNotFoundError as error:
        raise NotInstalled(f"{name} is not installed here; make setup installs what the services need") from error


def described(program: Path, environment: Path) -> Document:
    """What cyclonedx-py says of an environment. Raises CalledProcessError."""
    command = (program, "environment", environment, "--output-reproducible", "--spec-version", FORMAT, "--of", "JSON")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Document = json.loads(done.stdout)
    return found


def bill(environment: Document, distribution: str, needed: Mapping[str, frozenset[str]]) -> Document:
    """The bill of one distribution. needed: as `closure` gives it. Raises NotInstalled for what the
    description of the environment does not have.
    """
    by_name: dict[str, Document] = {}
    for component in environment["components"]:
        by_name.setdefault(canonicalize_name(component["name"]), component)
    missing = sorted(needed.keys() - by_name.keys())
    if missing:
        raise NotInstalled(f"{', '.join(missing)}: not in the description of this environment")
    components = {name: _component(by_name[name], ours=name in OURS) for name in sorted(needed)}
    references = {name: component["bom-ref"] for name, component in components.items()}
    root = components.pop(distribution) | {"type": "application"}
    return {
        "$schema": environment["$schema"],
        "bomFormat": environment["bomFormat"],
        "specVersion": environment["specVersion"],
        "version": 1,
        "metadata": {**environment["metadata"], "component": root},
        "components": list(components.values()),
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[each] for each in needed[name])}
            for name in sorted(needed)
        ],
    }


def _component(found: Document, *, ours: bool) -> Document:
    """Without references to files of this machine, and without the extras of the environment."""
    kept = {name: value for name, value in found.items() if name not in ("externalReferences", "properties")}
    links = [link for link in found.get("externalReferences", []) if not link["url"].startswith("file:")]
    name = f"{canonicalize_name(found['name'])}@{found['version'].replace('+', '%2B')}"
    return (
        kept
        | ({"externalReferences": links} if links else {})
        | {"purl": f"pkg:pypi/{name}"}
        | ({"bom-ref": f"{found['name']}=={found['version']}"} if ours else {})
    )


def text_of(document: Document) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release.sbom", description=__doc__)
    parser.add_argument("program", type=Path, metavar="CYCLONEDX_PY", help="cyclonedx-py, in its own environment")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "bills", metavar="DIR", help="(default: build/bills)"
    )
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        environment = described(options.program, Path(sys.prefix))
        for distribution, root in DISTRIBUTIONS.items():
            text = text_of(bill(environment, distribution, closure(root)))
            _require_valid(options.program, text)
            path = options.out / f"{distribution}.cdx.json"
            path.write_text(text, encoding="utf-8")
            print(f"{path}: {len(json.loads(text)['components'])} components of {root}")
    except (NotInstalled, OSError) as error:
        sys.exit(f"sbom: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"sbom: {error}: {error.stderr.strip()}")
    return 0


def _require_valid(program: Path, text: str) -> None:
    """By CycloneDX's own schema, in the environment of cyclonedx-py. Raises CalledProcessError."""
    subprocess.run((program.with_name("python"), "-c", _VALID), input=text, capture_output=True, text=True, check=True)


if __name__ == "__main__":
    sys.exit(main())
