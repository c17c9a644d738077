"""Every query of dashboards and rules parses, and names only what the services export."""

import json
from pathlib import Path

import pytest

from cosyserve.metrics.names import TERMS
from tests.monitoring.promql import (
    DASHBOARDS,
    OF_PROMETHEUS,
    OURS,
    Query,
    all_queries,
    base,
    known_labels,
    needs_promtool,
    promtool,
    queries_of_dashboard,
    recorded,
)


def as_rules(folder: Path, queries: list[Query]) -> Path:
    """A file of rules with these expressions. JSON is YAML."""
    rules = [{"record": f"query:{number}", "expr": query.plain} for number, query in enumerate(queries)]
    path = folder / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    return path


@needs_promtool
def test_every_query_parses(tmp_path: Path) -> None:
    queries = all_queries()
    assert len(queries) > 100
    checked = promtool("check", "rules", as_rules(tmp_path, queries))
    assert checked.returncode == 0, checked.stderr
    assert f"{len(queries)} rules found" in checked.stdout
    wrong = promtool("check", "rules", as_rules(tmp_path, [Query("made", "sum by (le (rate(up[5m]))")]))
    assert wrong.returncode != 0


@pytest.mark.parametrize("query", all_queries(), ids=lambda query: query.place.replace(" ", "-"))
def test_a_query_names_only_metrics_and_labels_that_there_are(query: Query) -> None:
    assert query.metrics or query.expression.startswith("vector(")
    for metric in query.metrics:
        assert base(metric) in OURS or metric in recorded() or metric in OF_PROMETHEUS, metric
    labels = set[str]().union(*map(known_labels, query.metrics))
    assert query.labels <= labels, query.labels - labels


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        (
            'sum by (le, service) (rate(a_bucket{b="x", c=~"{y}|a_total"}[5m])) > on (d) group_left () 2 * e:f',
            {"a_bucket", "e:f"},
            {"le", "service", "b", "c", "d"},
        ),
        ("absent(up) or 1 - avg_over_time(g:h_1[1h]) unless i offset 5m", {"up", "g:h_1", "i"}, set()),
        ('{job="x"} and on () j', {"j"}, {"job"}),
    ],
)
def test_how_queries_are_read(expression: str, metrics: set[str], labels: set[str]) -> None:
    # The braces inside a value are no end of the matchers for Prometheus; no query of ours has any.
    query = Query("", expression.replace("{y}", "y"))
    assert (query.metrics, query.labels) == (metrics, labels)


def test_what_nobody_looks_at_is_not_exported() -> None:
    """Each metric is in a dashboard or a rule, or is here with the reason."""
    named = {base(metric) for query in all_queries() for metric in query.metrics}
    # Guards have a metric of their own in the orchestrator; those of a stage are for its log.
    apart = {"cosyserve_speech_faults_total", "cosyserve_engine_rungs_refused", "cosyserve_cancels_total"}
    assert set(OURS) - named - apart == set()


def test_the_first_sound_has_a_row_for_each_term() -> None:
    (path,) = [path for path in DASHBOARDS if path.stem == "first-sound"]
    rows = [
        panel["title"].partition(":")[0]
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        if panel["type"] == "row"
    ]
    assert [row for row in rows if row in TERMS] == list(TERMS)
    asked = " ".join(query.expression for query in queries_of_dashboard(path))
    assert all(f'term="{term}"' in asked for term in TERMS)
