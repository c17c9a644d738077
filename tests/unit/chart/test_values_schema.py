"""The schema of the values refuses what is misspelt, at every level, and says where."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit.chart.manifests_of import needs_helm, refusal
from tools.chart.rendering import CHART, SETS, ChartError, helm, manifests

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
FREE = {"settings", "limits", "requests", "nodeSelector", "matchLabels", "labels", "digests"}
FREE |= {"annotations", "accountAnnotations"}
"""Whose keys are names of somebody else."""


def fields(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            if key not in FREE:
                yield from fields(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from fields(inner, (*path, number))


def merged(values: Any, more: Any) -> Any:
    """As helm does it: maps key by key, everything else whole."""
    if not (isinstance(values, dict) and isinstance(more, dict)):
        return more
    return {**values, **{key: merged(values.get(key), inner) for key, inner in more.items()}}


@pytest.mark.parametrize("values", [None, *SETS], ids=lambda values: values.stem if values else "defaults")
def test_each_field_misspelt_is_refused(values: Any) -> None:
    given = DEFAULTS if values is None else merged(DEFAULTS, yaml.safe_load(values.read_text(encoding="utf-8")))
    validator = jsonschema.Draft7Validator(SCHEMA)
    assert not list(validator.iter_errors(given))
    for path in fields(given):
        changed = copy.deepcopy(given)
        holder = changed
        for step in path[:-1]:
            holder = holder[step]
        holder[f"{path[-1]}x"] = holder.pop(path[-1])
        assert list(validator.iter_errors(changed)), path


@needs_helm
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("services.llm.replica=2", "replica"),
        ("services.narrator.port=1", "narrator"),
        ("services.llm.settings.kv_budget=1", "kv_budget"),
        ("services.frontend.gpu.count=1", "gpu"),
        ("services.llm.gpu.resource=gpu", "resource"),
        ("services.llm.resources.limits.memory=many", "memory"),
        ("voices.secret=keys", "voices"),
        ("voices.secret=keys,voices.claim=voices", "voices"),
        ("voices.secret=Keys_1,voices.url=s3://bucket/voices", "voices"),
        ("tls.secret=Not_a_name", "secret"),
        ("tls.stageCallers={a b}", "stageCallers"),
        ("healthPort=80", "healthPort"),
        ("image.digests.orchestrator=latest", "digests"),
        ("autoscaling.kind=knative", "kind"),
        ("podMonitors.interval=often", "interval"),
        ("networkPolicies.metrics[0].podSelectors.a=b", "podSelectors"),
        ("routes.http.enabled=true,routes.http.parents[0].nam=public", "nam"),
        ("healthPort=50053", "healthPort is 50053, which is a port of services.llm"),
        ("services.gateway.wyomingPort=8081", "healthPort is 8081, which is a port of services.gateway"),
        ("services.gateway.wyomingPort=8080", "port and wyomingPort are both 8080"),
        ("services.gateway.tlsSecret=public", "tls.secret is empty"),
    ],
)
def test_wrong_values_are_refused_by_name(setting: str, complaint: str) -> None:
    assert complaint in refusal("access.insecure=true", setting)


@needs_helm
@pytest.mark.parametrize("release", ["a" * 41, "1tts", "my.tts"])
def test_a_release_after_which_no_service_can_be_named_is_refused(release: str) -> None:
    with pytest.raises(ChartError, match="Services are named after it"):
        helm("template", release, CHART, "--set", "access.insecure=true")


@needs_helm
def test_the_longest_name_of_a_release_is_short_enough_for_every_object() -> None:
    more = ("--set", "access.insecure=true,autoscaling.kind=hpa")
    made = manifests(helm("template", "a" * 40, CHART, *more))
    assert max(len(each["metadata"]["name"]) for each in made) <= 63
