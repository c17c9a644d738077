"""Reads queries of Prometheus as far as the tests need it: which metrics and labels they name."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyserve.metrics import names

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "k8s" / "dashboards").glob("*.json"))
RULES = (ROOT / "k8s" / "alerts" / "recording.yaml", ROOT / "k8s" / "alerts" / "alerts.yaml")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian's prometheus)")
OURS = {metric.prometheus: metric for metric in names.ALL}
OF_PROMETHEUS = {"up": ("job", "instance")}
TARGET = {"service", "instance", "job"}
"""Labels that every series has: our own, and those that Prometheus adds."""
_WORDS = {
    *("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right"),
    *("offset", "bool", "inf", "nan"),
}
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHERS = re.compile(r"(?P<metric>[a-zA-Z_:][\w:]*)?\s*\{(?P<matchers>[^}]*)\}")
_NAME = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*")


@dataclass(frozen=True)
class Query:
    """An expression and where it is."""

    place: str
    expression: str

    @property
    def metrics(self) -> set[str]:
        """Names of the metrics, those of recording rules included."""
        text = re.sub(r'"(?:\\.|[^"\\])*"', '""', self.expression)
        text = re.sub(r"\[[^\]]*\]", "", _MATCHERS.sub(lambda match: f" {match['metric'] or ''} ", text))
        text = _GROUPING.sub(" ", text)
        found = {match[0]: text[match.end() :].lstrip()[:1] for match in _NAME.finditer(text)}
        return {name for name, behind in found.items() if name.lower() not in _WORDS and behind != "("}

    @property
    def labels(self) -> set[str]:
        """Names of the labels that it selects or groups by."""
        matchers = [match["matchers"] for match in _MATCHERS.finditer(self.expression)]
        selected = {name for each in matchers for name in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", each)}
        grouped = {name.strip() for _, inside in _GROUPING.findall(self.expression) for name in inside.split(",")}
        return (selected | grouped) - {""}

    @property
    def plain(self) -> str:
        """With a value for each variable of Grafana."""
        fixed = {"$__rate_interval": "5m", "$__range": "1h", "$key": ".*", "$tenant": ".*"}
        text = self.expression
        for name, value in fixed.items():
            text = text.replace(name, value)
        return text


def base(metric: str) -> str:
    """The name without the part that a histogram's series have behind it."""
    cut = re.sub(r"_(bucket|sum|count)$", "", metric)
    return cut if cut in OURS and OURS[cut].kind is names.Kind.HISTOGRAM else metric


def known_labels(metric: str) -> set[str]:
    """Those that the series of a metric may have. Raises KeyError for an unknown metric."""
    if metric in OF_PROMETHEUS:
        return set(OF_PROMETHEUS[metric])
    if metric in recorded():
        return {*TARGET, "slo"}
    return {*TARGET, *OURS[base(metric)].labels, *(["le"] if metric.endswith("_bucket") else [])}


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panels(panel) if "panels" in panel else ()


def queries_of_dashboard(path: Path) -> list[Query]:
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    found = [
        Query(f"{path.name}: {panel['title']}", target["expr"])
        for panel in panels(dashboard)
        for target in panel.get("targets", ())
        if "expr" in target
    ]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            assert selector, variable
            found.append(Query(f"{path.name}: variable {variable['name']}", selector[1]))
    return found


@cache
def rules() -> list[dict[str, Any]]:
    """All rules, recording and alerting."""
    return [
        rule
        for path in RULES
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def all_queries() -> list[Query]:
    of_rules = [Query(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules()]
    return [*of_rules, *(query for path in DASHBOARDS for query in queries_of_dashboard(path))]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
