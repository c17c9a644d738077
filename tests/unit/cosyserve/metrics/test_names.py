"""The names that dashboards, alerts and autoscaling are written against: a change of one breaks
them all.
"""

import re

from cosyserve.metrics import names
from cosyserve.metrics.instruments import known_series
from cosyserve.metrics.names import ALL, Kind, service_of
from tests.stacks.up_process import ROOT

PROMETHEUS = {
    "cosyserve_audio_seconds_total",
    "cosyserve_batch_size",
    "cosyserve_cache_lookups_total",
    "cosyserve_cancel_seconds",
    "cosyserve_cancels_total",
    "cosyserve_characters_total",
    "cosyserve_engine_rung",
    "cosyserve_engine_rungs_refused",
    "cosyserve_failovers_total",
    "cosyserve_first_audible_seconds",
    "cosyserve_first_byte_seconds",
    "cosyserve_first_sound_term_seconds",
    "cosyserve_gap_seconds_total",
    "cosyserve_gaps_total",
    "cosyserve_gpu_memory_bytes",
    "cosyserve_gpu_memory_limit_bytes",
    "cosyserve_gpu_utilisation_ratio",
    "cosyserve_guards_total",
    "cosyserve_key_requests_total",
    "cosyserve_llm_running",
    "cosyserve_llm_slots",
    "cosyserve_llm_waiting",
    "cosyserve_playback_slack_seconds",
    "cosyserve_queue_age_seconds",
    "cosyserve_real_time_factor",
    "cosyserve_refusals_total",
    "cosyserve_requests_total",
    "cosyserve_speech_faults_total",
    "cosyserve_stage_first_result_seconds",
    "cosyserve_streams_active",
    "cosyserve_streams_limit",
    "cosyserve_streams_waiting",
    "cosyserve_tasks",
    "cosyserve_token2wav_pages",
    "cosyserve_token2wav_pages_used",
    "cosyserve_token2wav_slack_ratio",
}


def test_the_names_are_kept() -> None:
    assert {metric.prometheus for metric in ALL} >= PROMETHEUS
    assert len({metric.prometheus for metric in ALL}) == len({metric.name for metric in ALL}) == len(ALL)


def test_every_name_is_one_of_prometheus_and_of_some_service() -> None:
    for metric in ALL:
        assert re.fullmatch(r"cosyserve_[a-z0-9_]+", metric.prometheus)
        assert metric.services
        assert set(metric.services) <= set(names.SERVICES)
        assert bool(metric.borders) == (metric.kind is Kind.HISTOGRAM)
        assert list(metric.borders) == sorted(set(metric.borders))
        assert metric.description[0].isupper() or metric.description[0].isdigit()


def test_the_targets_of_a_first_sound_are_borders_of_buckets() -> None:
    for metric in (names.FIRST_BYTE, names.FIRST_AUDIBLE, names.FIRST_SOUND_TERM):
        assert {0.2, 0.4} <= set(metric.borders)


def test_services_have_their_own_names() -> None:
    full = ("FrontendService", "LlmService", "Token2WavService", "SynthesisService")
    assert tuple(service_of(f"cosyserve.v1.{name}") for name in full) == names.GRPC


def test_series_that_are_known_have_only_known_labels() -> None:
    assert {"limit": "streams"} in known_series(names.REFUSALS, "orchestrator")
    assert {"cache": "prompts", "result": "miss"} in known_series(names.CACHE_LOOKUPS, "token2wav")
    assert known_series(names.CACHE_LOOKUPS, "llm") == []
    assert known_series(names.AUDIO_SECONDS, "orchestrator") == []
    assert known_series(names.GAPS, "orchestrator") == [{}]


def test_every_metric_is_in_the_documentation() -> None:
    table = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = {
        cells[1].strip(" `"): [cell.strip() for cell in cells[2:-1]]
        for line in table.splitlines()
        if line.startswith("| `cosyserve_") and (cells := line.split("|"))
    }
    assert rows.keys() == {metric.prometheus for metric in ALL}
    for metric in ALL:
        kind, labels, services, _ = rows[metric.prometheus]
        assert kind == metric.kind.value, metric.name
        assert tuple(re.findall(r"`(\w+)`", labels)) == metric.labels, metric.name
        assert set(services.split(", ")) == set(metric.services), metric.name
