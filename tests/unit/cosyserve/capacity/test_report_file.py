"""What of a report is read, and which reports are refused, with what is wrong and where."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cosyserve.capacity.report_file import BadReport, default_profile, read_profile


def report() -> dict[str, Any]:
    """As `make bench-gpu` writes it, with figures made up here."""
    return {
        "subject": {"machine": "one made-up GPU"},
        "parts": {},
        "figures": {
            "llm-engine": {
                "engine": {"together": [{"sentences": 1, "step_ms": 0.5}, {"sentences": 8, "step_ms": 1.0}]}
            },
            "llm-steps": {
                "steps": {"chunks": [{"first": 0, "count": 96, "us": 900}, {"first": 0, "count": 256, "us": 2000}]}
            },
            "flow": {"1 1": 10.0, "1 5": 14.0, "4 1": 20.0, "4 5": 28.0, "cold": 15.0, "kept": 11.0},
            "recompute": {"4": 16.0, "8": 24.0},
            "vocoder": {"float16 50 1": 0.5, "float16 50 4": 1.0, "float16 10 1": 0.4, "float16 error": [1e-3, 1e-3]},
            "lengths": {
                "context_megabytes": 500,
                "llm_megabytes": 4000,
                "llm_pool_megabytes": 2000,
                "token2wav_megabytes": 17000,
                "token2wav_pool_megabytes": 14000,
                "llm_stream": {"tokens": 100, "bytes": 1_000_000},
                "4": {"milliseconds_per_second": 16.0, "state_megabytes": 400},
                "10": {"milliseconds_per_second": 16.0, "state_megabytes": 1000},
            },
        },
    }


def written(directory: Path, content: Any) -> Path:
    path = directory / "report.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_figures_become_seconds_and_bytes(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, report()))
    assert profile.name == "one made-up GPU"
    assert profile.decode == {1: 0.0005, 8: 0.001}
    assert profile.prefill == 0.002
    assert profile.flow_pass(1, 1) == 0.010
    assert profile.flow_pass(1, 3) == pytest.approx(0.012)
    assert profile.flow_pass(2, 1) == 0.020, "a pass of two takes the next larger one"
    assert profile.flow_pass(9, 1) == pytest.approx(0.060), "three of the largest"
    assert profile.flow_pass(1, 9) == pytest.approx(0.018), "it grows as between the measured lengths"
    assert profile.vocoder == {1: 0.0005, 4: 0.001}
    assert profile.block_bytes == 100_000_000
    assert profile.llm_bytes == 2_000_000_000
    assert profile.token2wav_bytes == 3_500_000_000
    assert profile.row_bytes == 10_000


def test_what_the_bench_does_not_measure_is_the_default_profile_s(tmp_path: Path) -> None:
    known, profile = default_profile(), read_profile(written(tmp_path, report()))
    assert (profile.contention, profile.hosts, profile.memory) == (known.contention, known.hosts, known.memory)
    mine = report() | {"gpu": {"memory_gibibytes": 24}, "beside": {"flow": {"1": 1.5}, "decode": 2}}
    own = read_profile(written(tmp_path, mine))
    assert (own.memory, own.contention.of_flow(32), own.contention.decode) == (24 << 30, 1.5, 2)


def test_the_default_profile_names_the_source_of_each_part() -> None:
    content = json.loads(Path("cosyserve/capacity/profiles/h200.json").read_text())
    assert set(content["figures"]) | {"beside", "gpu", "host"} == set(content["sources"])
    assert all("docs/" in source or "free on" in source for source in content["sources"].values())


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    content = report()
    change(content["figures"])
    return content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("no json", "is no JSON"),
        ([1], "no object `figures`"),
        ({"figures": 3}, "no object `figures`"),
        (changed(lambda figures: figures.pop("flow")), "lacks the part flow: make bench-gpu BENCH_ARGS='--part flow'"),
        (changed(lambda figures: figures["flow"].update({"1 1": "fast"})), "flow.'1 1' is 'fast'"),
        (changed(lambda figures: figures["flow"].update({"1 1": -3})), "flow.'1 1' is -3"),
        (changed(lambda figures: figures["flow"].update({"1 1": float("nan")})), "flow.'1 1' is nan"),
        (changed(lambda figures: figures.update({"recompute": {"x": 1}})), "recompute has no figure"),
        (changed(lambda figures: figures["llm-engine"].update({"engine": {}})), "no list engine.together"),
        (changed(lambda figures: figures["llm-engine"]["engine"].update({"together": [3]})), "together[0] is 3"),
        (changed(lambda figures: figures["llm-steps"].update({"steps": {"chunks": []}})), "no chunk of 256 positions"),
        (changed(lambda figures: figures["lengths"].pop("10")), "no sentence of 10 s"),
        (changed(lambda figures: figures["lengths"].pop("llm_stream")), "no llm_stream"),
        (changed(lambda figures: figures["lengths"]["10"].update({"state_megabytes": 400})), "holds more than"),
        (report() | {"beside": {"flow": {}}}, "beside.flow is no object"),
        (report() | {"beside": {"flow": {"0": 1.0}, "decode": 1}}, "beside.flow has the key '0'"),
        (report() | {"gpu": {"memory_gibibytes": 0}}, "gpu.memory_gibibytes is 0"),
        (report() | {"host": {"step_milliseconds": {"1": None}}}, "host.step_milliseconds.1 is None"),
    ],
)
def test_a_bad_report_is_refused_with_what_is_wrong(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(BadReport) as refusal:
        read_profile(written(tmp_path, content))
    assert says in str(refusal.value)
    assert str(tmp_path / "report.json") in str(refusal.value)
