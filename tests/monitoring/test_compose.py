"""compose.observability.yaml and the files that it mounts: known fields, and parts that fit each
other and the services.
"""

import copy
import re
from typing import Any

import jsonschema
import pytest
import yaml
from compose_spec import PyCompose

from cosyserve.metrics.names import SECONDS, SERVICES
from cosyserve.traces.first_sound import FIRST_SOUND_MILLISECONDS
from tests.monitoring.promql import ROOT, needs_promtool, promtool, rules

COMPOSE = (ROOT / "compose.observability.yaml").read_text(encoding="utf-8")
SCHEMAS = yaml.safe_load((ROOT / "tests" / "monitoring" / "schemas.yaml").read_text(encoding="utf-8"))
FILES = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "observability").glob("*.yaml"))
}
OBSERVING = ("collector", "tempo", "prometheus", "grafana")


def composed() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
    return services


def paths_of(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each key of an object, at any depth."""
    found = []
    if isinstance(values, dict):
        for key, value in values.items():
            found += [(*path, key), *paths_of(value, (*path, key))]
    elif isinstance(values, list):
        for index, value in enumerate(values):
            found += paths_of(value, (*path, index))
    return found


def test_compose_knows_every_field() -> None:
    PyCompose.from_yaml(COMPOSE)
    with pytest.raises(ValueError, match="prots"):
        PyCompose.from_yaml(COMPOSE.replace("    ports:", "    prots:", 1))


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_files_fit_their_schemas_and_a_misspelt_field_does_not(name: str) -> None:
    jsonschema.validate(FILES[name], SCHEMAS[name])
    for *way, last in paths_of(FILES[name]):
        wrong = copy.deepcopy(FILES[name])
        holder = wrong
        for step in way:
            holder = holder[step]
        holder[f"{last}x"] = holder.pop(last)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMAS[name])


@needs_promtool
def test_promtool_accepts_the_configuration() -> None:
    checked = promtool("check", "config", "--syntax-only", ROOT / "observability" / "prometheus.yaml")
    assert checked.returncode == 0, checked.stderr


def test_every_service_is_scraped_and_traced() -> None:
    services = composed()
    assert set(services) == {*SERVICES, *OBSERVING}
    (job,) = FILES["prometheus"]["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert (set(found["names"]), found["type"]) == (set(SERVICES), "A")
    for name in SERVICES:
        assert services[name]["environment"] == {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4317",
            f"COSYSERVE_{name.upper()}_HEALTH_LISTEN": f"0.0.0.0:{found['port']}",
        }


def test_what_is_mounted_is_there_and_kept() -> None:
    declared = set(yaml.safe_load(COMPOSE)["volumes"])
    named = set()
    for name in OBSERVING:
        service = composed()[name]
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), "a version, not a moving name"
        for mount in service["volumes"]:
            source, *_, last = mount.split(":")
            if source.startswith("./"):
                assert last == "ro"
                assert (ROOT / source).exists(), source
            else:
                named.add(source)
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    assert named == declared


def test_the_collector_keeps_failures_and_late_first_sounds() -> None:
    settings = FILES["collector"]
    policies = {
        policy["name"]: policy[policy["type"]] for policy in settings["processors"]["tail_sampling"]["policies"]
    }
    assert policies["failed"] == {"status_codes": ["ERROR"]}
    late = policies["late"]
    assert late["key"] == FIRST_SOUND_MILLISECONDS
    (objective,) = {
        border
        for rule in rules()
        if rule.get("labels", {}).get("slo") == "first_sound"
        for border in re.findall(r'le="([\d.]+)"', rule["expr"])
    }
    assert float(objective) in SECONDS
    assert late["min_value"] == round(1000 * float(objective))
    pipeline = settings["service"]["pipelines"]["traces"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(settings[kind])
    assert pipeline["processors"][0] == "memory_limiter"


def test_grafana_shows_what_the_others_have() -> None:
    sources = {source["type"]: source for source in FILES["grafana-datasources"]["datasources"]}
    assert sources["prometheus"]["url"] == "http://prometheus:9090"
    assert sources["tempo"]["url"] == f"http://tempo:{FILES['tempo']['server']['http_listen_port']}"
    (link,) = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert link == {"name": "trace_id", "datasourceUid": sources["tempo"]["uid"]}
    (provider,) = FILES["grafana-dashboards"]["providers"]
    assert f"./k8s/dashboards:{provider['options']['path']}:ro" in composed()["grafana"]["volumes"]
