"""The chart as helm renders it, once for each set of values, and what tests look up in it."""

import re
from functools import cache
from typing import Any

import pytest

from tools.chart.rendering import CHART, RELEASE, SETS, ChartError, helm, helm_program, manifests, rendered

Manifest = dict[str, Any]
STAGES = ("frontend", "llm", "token2wav")
SERVICES = (*STAGES, "orchestrator", "gateway")
SET_NAMES = tuple(values.stem.removesuffix("-values") for values in SETS)
needs_helm = pytest.mark.skipif(helm_program() is None, reason="helm is neither on PATH nor named by HELM")


@cache
def documents(name: str = "cpu-demo", *more: str) -> list[Manifest]:
    """The manifests of k8s/chart/ci/<name>-values.yaml; more: further arguments of helm."""
    return manifests(rendered(CHART / "ci" / f"{name}-values.yaml", *more))


def with_set(setting: str, name: str = "cpu-demo") -> list[Manifest]:
    """Those, with a value set, or several."""
    return documents(name, *set_words(setting))


def refusal(*settings: str) -> str:
    """What helm says to values that it refuses."""
    with pytest.raises(ChartError) as caught:
        helm("template", RELEASE, CHART, *(word for setting in settings for word in set_words(setting)))
    return str(caught.value)


def set_words(setting: str) -> tuple[str, str]:
    """Settings of services are strings."""
    return ("--set-string" if re.search(r"settings\.\w+=[0-9.]+$", setting) else "--set"), setting


def by_name(kind: str, given: list[Manifest]) -> dict[str, Manifest]:
    """The manifests of a kind by what follows `tts-` in their names."""
    return {each["metadata"]["name"].removeprefix(f"{RELEASE}-"): each for each in given if each["kind"] == kind}


def pod(deployment: Manifest) -> Manifest:
    return deployment["spec"]["template"]["spec"]


def container(deployment: Manifest) -> Manifest:
    return pod(deployment)["containers"][0]


def environment(deployment: Manifest) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(deployment)["env"]}
