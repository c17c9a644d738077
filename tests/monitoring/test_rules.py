"""Rules and alerts: promtool accepts them, a made series fires each alert, and each has a runbook
that tells what to do.
"""

import re
from typing import Any

import pytest
import yaml

from tests.monitoring.promql import ROOT, RULES, needs_promtool, promtool, rules

TESTS = sorted((ROOT / "k8s" / "alerts" / "tests").glob("*.yaml"))
ALERTS = [rule for rule in rules() if "alert" in rule]
RUNBOOKS = ROOT / "docs" / "operations.md"


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    checked = promtool("check", "rules", "--lint-fatal", *RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_promtool
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_made_series_fire_what_they_should(path: Any) -> None:
    tested = promtool("test", "rules", path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_alert_is_fired_once() -> None:
    fired = {
        (check["alertname"], alert["exp_labels"]["severity"])
        for path in TESTS
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for check in test["alert_rule_test"]
        for alert in check.get("exp_alerts", ())
    }
    assert fired == {(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS}


def runbooks() -> dict[str, str]:
    """The text below each heading that is the name of an alert."""
    parts = re.split(r"^### (Cosyserve\w+)\n", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    assert set(runbooks()) == {alert["alert"] for alert in ALERTS}
    for name, text in runbooks().items():
        steps = re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]
        assert "**Means.**" in steps, name
        assert "**Do.**" in steps, name


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: f"{alert['alert']}-{alert['labels']['severity']}")
def test_what_an_alert_says(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"
    assert re.fullmatch(r"\d+[mh]", alert["for"])
