"""The bill of materials of a distribution: what it needs and nothing else, and the same bytes each
time.
"""

from typing import Any

import pytest

from tools.release.sbom import NotInstalled, bill, closure, text_of


def component(name: str, version: str = "1.0", **more: Any) -> dict[str, Any]:
    return {"bom-ref": f"{name}=={version}", "name": name, "version": version, "type": "library", **more}


def environment(*components: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "metadata": {"properties": [{"name": "cdx:reproducible", "value": "true"}]}, "components": list(components),
    }  # fmt: skip


HERE = {"comment": "PackageSource: Local", "type": "distribution", "url": "file:///home/somebody/cosyserve"}
THERE = {"type": "website", "url": "https://example.org"}
NEEDED = {
    "cosyserve": frozenset({"pyyaml", "torch"}), "pyyaml": frozenset[str](), "torch": frozenset[str](),
}  # fmt: skip
FOUND = (
    component("cosyserve", "0.2.0", externalReferences=[HERE, THERE]),
    component("pytest"),
    component("PyYAML", "6.0"),
    component("torch", "2.13.0+cpu", properties=[{"name": "cdx:python:package:required-extra", "value": "dev"}]),
)


def test_it_holds_what_is_needed_and_what_needs_it() -> None:
    made = bill(environment(*FOUND), "cosyserve", NEEDED)
    assert [one["name"] for one in made["components"]] == ["PyYAML", "torch"]
    assert [one["purl"] for one in made["components"]] == ["pkg:pypi/pyyaml@6.0", "pkg:pypi/torch@2.13.0%2Bcpu"]
    assert made["metadata"]["component"]["type"] == "application"
    assert made["metadata"]["component"]["externalReferences"] == [THERE]
    assert made["dependencies"][0] == {"ref": "cosyserve==0.2.0", "dependsOn": ["PyYAML==6.0", "torch==2.13.0+cpu"]}


def test_the_same_environment_gives_the_same_bytes_without_a_path_of_the_machine() -> None:
    one, other = (text_of(bill(environment(*found), "cosyserve", NEEDED)) for found in (FOUND, tuple(reversed(FOUND))))
    assert one == other
    assert "file:" not in one
    assert "somebody" not in one


def test_what_is_not_in_the_description_is_an_error() -> None:
    with pytest.raises(NotInstalled, match="torch"):
        bill(environment(*FOUND[:3]), "cosyserve", NEEDED)


def test_the_closure_is_that_of_the_extras_that_are_asked_for() -> None:
    """Of this very environment, in which the developer's tools are installed, too."""
    client = closure("cosyserve")
    assert {"grpcio", "numpy", "pyyaml"} <= client.keys()
    assert not {"torch", "av", "pytest"} & client.keys()
    assert "av" in closure("cosyserve[audio]")
    server = closure("cosyserve-server[cpu]")
    assert {"torch", "fastapi", "cosyserve", "av", "uvicorn"} <= server.keys()
    assert not {"pytest", "ruff", "mypy", "matplotlib", "pyjwt"} & server.keys()
    assert "pyjwt" in closure("cosyserve-server[jwt]")


def test_a_distribution_that_is_not_here() -> None:
    with pytest.raises(NotInstalled, match="no-such-distribution is not installed here"):
        closure("no-such-distribution")
