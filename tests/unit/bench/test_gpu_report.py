"""The report of a GPU, on figures made up here: what was asked for, what holds, and what is shown
of what is missing.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import stage_tables
from bench.gpu.parts import ENGINES, SOAK_STREAMS, Plan, parts, settings, state_bytes
from bench.gpu.report import write
from bench.gpu.targets import ELSEWHERE, Target, demands, most_without_gap
from bench.gpu.timing import LowerBounds, estimator_weights
from bench.load.flat_memory import verdict
from bench.load_soak import Looks
from bench.parts.ledger import DONE, FAILED, Ledger, Run
from bench.parts.provenance import Subject
from bench.reports.serving_report import Level
from cosyserve.client.types import STAGES

CEILINGS = {
    "copy_terabytes_per_second": 4.0,
    "read_terabytes_per_second": 4.0,
    "bf16_teraflops": 800.0,
    "kernel_us": 1.0,
}


def load(streams: int, gap_free: float = 1.0, arrivals: str = "closed", **more: Any) -> dict[str, Any]:
    figures = {
        "arrivals": arrivals, "streams": streams, "requests": 10, "refused": 0, "failed": 0, "p50": 40.0, "p95": 50.0,
        "p99": 60.0,
        "real_time_factor": 0.05, "audio_per_second": 20.0, "gap_free": gap_free,
        "stall_seconds": 0.0 if gap_free == 1 else 0.2,
        "stages": dict.fromkeys(STAGES, 5.0), "megabytes": 1000.0,
    }  # fmt: skip
    return asdict(Level(**(figures | more)))


def measured() -> dict[str, Any]:
    """As the parts leave it."""
    step = {
        "sentences": 1,
        "step_ms": 0.55,
        "step_p99_ms": 0.7,
        "floor_ms": 0.17,
        "share_of_floor": 0.31,
        "first_token_ms": 2.5,
        "last_first_token_ms": 2.6,
    }
    soak_points = [[float(at), 100.0] for at in range(0, 500, 10)]
    return {
        "ceilings": {"device": "GPU", "ceilings": CEILINGS},
        "llm-steps": {
            "steps": {
                "steps": [{"length": 300, "rows": 1, "us": 530.0, "floor_us": 170.0}],
                "chunks": [
                    {"first": 0, "count": 96, "us": 1000.0},
                    {"first": 0, "count": 256, "us": 1170.0},
                    {"first": 768, "count": 256, "us": 1900.0},
                ],
            }
        },
        "llm-engine": {
            "engine": {
                "together": [step, {**step, "sentences": 64, "step_ms": 1.2}],
                "alone": [{"positions": 256, "first_token_ms": 2.5}],
            }
        },
        "llm-one-launch": {
            "one-launch": {
                "steps": [{"length": 300, "one_launch_us": 382.0, "launches_us": 614.0}],
                "engine": {"one_launch_ms": 0.34, "launches_ms": 0.603},
            }
        },
        "flow": {"1 1": 12.0, "1 4": 12.0, "16 4": 30.0, "cold": 7.9, "kept": 5.1},
        "vocoder": {"tf32 error": [3e-3, 1e-3], "tf32 50 1": 1.9},
        "lengths": {
            "4": {"milliseconds_per_second": 20.0, "state_megabytes": 464.0},
            "30": {"milliseconds_per_second": 30.0, "state_megabytes": 3500.0},
        },
        "llm-same": {
            "same": {
                "float32": {
                    "against the readable path": {"equal": 32, "of": 32, "agreed_tokens": 1298},
                    "against alone": {"equal": 31, "of": 32, "agreed_tokens": 9},
                }
            }
        },
        "mel": {"bfloat16": [4e-3, 3e-3]},
        "samples": {"0": [1e-3, 0.0, 0.0]},
        "closed": {"levels": [load(1), load(8, p95=130.0), load(64, 0.5)]},
        "most": {"levels": [load(64, arrivals="listening"), load(96, 0.995, "listening"), load(128, 0.8, "listening")]},
        "most-long": {"levels": [load(216, arrivals="listening"), load(320, refused=9, arrivals="listening")]},
        "offline": {"1": {"engines": "fast", "batch": 1, "sentences": 16, "audio": 50.0, "llm": 0.5, "token2wav": 1.0}},
        "soak": {
            "seconds": 481.0,
            "heard_out": 90,
            "hung_up": 30,
            "failed": 0,
            "errors": {},
            "by_requests": {"llm.0": 0.002, "GPU": 0.0},
            "samples": {"llm.0": soak_points, "GPU": soak_points},
            "slopes": {"llm.0": 0.1, "GPU": 0.0},
        },
    }


def by_name(outcomes: list[Target]) -> dict[str, Target]:
    return {one.what: one for one in outcomes}


STEP, LISTENING = "speech tokens, 1 at once: time of a step", "64 streams without a gap, listening"
HOLDS = {
    "speech tokens, 64 at once: time of a step": False,
    "a token of one sentence, GPU_DECODE=one_launch": True,
    "prefill of 256 positions, its chunk": True,
    "first flow chunk behind 87 prompt tokens, nothing kept": True,
    "first flow chunk behind 87 prompt tokens, prompt kept": False,
    "first sound p95, 8 streams, closed loop": False,
    "first sound p50, 1 streams, closed loop": False,
    "audio, the most of a closed loop": False,
    LISTENING: True,
    "speech tokens in float32, fused = readable": True,
    "speech tokens in float32, 32 at once = each alone": False,
    f"minutes at {SOAK_STREAMS} streams with hang-ups: memory flat, no error": True,
}
SEEN = {
    "flow, 16 streams in a batch by one stream": "2.5 times",
    "token2wav, a second of audio in 30 s by one in 4 s": "1.5 times",
    "64 streams without a gap, closed loop": "50.0%, longest stall 0.20 s",
    "most listeners at once without a gap": "64; 99 % of the streams: 96",
    "prefill of 256 positions, its chunk": "1.17 ms",
    "audio, the most of a closed loop": "20 s/s",
    "start of the services with kernels kept": "not measured here, by `make bench-field`",
}


def test_what_was_asked_for_is_judged() -> None:
    judged = by_name(demands(measured()))
    assert judged[STEP] == Target(STEP, "at most 0.35 ms", "0.55 ms", "0.17 ms", False)
    # 184 GFLOP at 800 TFLOP/s and 0.7 GB at 4 TB/s.
    assert judged["audio, the most of a closed loop"].floor == "at most 2,469 s/s"
    long = [(one.goal, one.seen, one.holds) for one in demands(measured()) if one.what.endswith("sentences of 10 s")]
    heard = "216; 99 % of the streams: 216"
    assert long == [("at least 216", heard, True), ("goal 500", heard, False)]
    unmeasured = "first sound p95, 8 streams, Poisson arrivals"
    assert judged[unmeasured] == Target(unmeasured, "at most 120 ms")
    assert {what: judged[what].holds for what in HOLDS} == HOLDS
    assert {what: judged[what].seen for what in SEEN} == SEEN
    refused = by_name(demands({"most": {"levels": [load(64, arrivals="listening", refused=1, failed=1)]}}))[LISTENING]
    assert (refused.seen, refused.holds) == ("100.0%, longest stall 0.00 s, 2 of 10 not heard", False)


def test_what_was_not_measured_is_named_as_such() -> None:
    judged = demands({})
    assert len(judged) == len(demands(measured()))
    here, elsewhere = judged[: -len(ELSEWHERE)], judged[-len(ELSEWHERE) :]
    assert {(one.seen, one.holds) for one in here} == {("not measured", None)}
    assert all(one.seen.startswith("not measured here, by `") and one.holds is None for one in elsewhere)


def test_windows_of_the_vocoder_are_distinguished() -> None:
    figures = {
        "vocoder": {
            "tf32 error": [3e-3, 0.0], "float16 error": [2e-3, 0.0], "tf32 50 8": 9.0, "float16 10 1": 0.9,
            "float16 50 1": 1.1,
            "float16, one after the other 50 1": 1.4,
        }
    }  # fmt: skip
    assert stage_tables.windows(figures) == {("tf32", 50, 8): 9.0, ("float16", 10, 1): 0.9, ("float16", 50, 1): 1.1}
    assert "| float16 | 10 | 1 | 0.9 |  |" in stage_tables.vocoder(figures, LowerBounds(CEILINGS))
    judged = by_name(demands(figures))
    assert judged["vocoder for it, float16"].seen == "1.1 ms"
    assert judged["sound of the vocoder in float16, relative error"].holds is True


@pytest.mark.parametrize(
    ("loads", "most"),
    [
        ([(96, 1.0, 0), (64, 1.0, 0), (128, 0.9, 0), (160, 1.0, 0)], 96),
        ([(64, 1.0, 0), (96, 1.0, 2)], 64),
        ([(64, 0.5, 0)], None),
    ],
)
def test_the_most_listeners_are_counted_up_to_the_first_gap(
    loads: list[tuple[int, float, int]], most: int | None
) -> None:
    levels = [Level(**load(streams, share, "listening", refused=refused)) for streams, share, refused in loads]
    assert most_without_gap(levels, 1.0) == most


def test_a_soak_that_grows_or_fails_is_reported() -> None:
    seconds = [float(at) for at in range(0, 120, 10)]
    samples = {
        "flat": [(at, 50.0) for at in seconds],
        "grows": [(at, 50.0 + at / 30) for at in seconds],
        "new": [(110.0, 5.0)],
    }
    looks = Looks(samples, {at: 6 * round(at) for at in seconds})
    assert (looks.after(0), looks.after(61), looks.after(660), looks.after(661)) == (0.0, 20.0, 110.0, math.inf)
    assert looks.slopes(math.inf) == looks.by_requests(math.inf) == {}, "before the warm-up is over"
    assert looks.slopes(20.0) == {"flat": pytest.approx(0.0, abs=1e-9), "grows": pytest.approx(2.0)}
    assert looks.by_requests(20.0) == {"flat": pytest.approx(0.0, abs=1e-9), "grows": pytest.approx(100 / 6 / 30)}
    assert Looks(samples, {at: round(0.5 * at) for at in seconds}).by_requests(0.0) == {}, "55 requests are too few"
    wrong = {"by_requests": {"flat": 0.5, "grows": 2.0}, "heard_out": 72, "errors": {"Unavailable: gone": 2}}
    assert verdict(wrong) == ["grows grows by 2.00 MB in 100 requests", "failed 2 times: Unavailable: gone"]
    assert verdict({"by_requests": {"flat": 0.9}, "heard_out": 1, "errors": {}}) == []
    assert verdict({"by_requests": {}, "heard_out": 0, "errors": {}}) == [
        "too few requests to measure whether memory grows", "no answer was heard to its end",
    ]  # fmt: skip


def test_floors_follow_from_sizes_and_ceilings() -> None:
    floors = LowerBounds(CEILINGS)
    # Weights of the estimator, two bytes each, read at ten steps; the products of 32 blocks take
    # longer than that.
    assert floors.flow(1) == pytest.approx(10 * 2 * estimator_weights() / 4e12 * 1e3)
    assert floors.flow(32) == pytest.approx(2 * estimator_weights() * 10 * 2 * 50 * 32 / 800e12 * 1e3)
    assert floors.vocoder(2) == pytest.approx(2 * floors.vocoder())
    assert 60e6 < estimator_weights() < 90e6


def test_the_report_has_every_table_and_names_what_failed(tmp_path: Path) -> None:
    every = parts(Plan(tmp_path, tmp_path / "model", 150_000_000_000))
    figures = measured()
    assert set(figures) <= {part.name for part in every}
    for name, value in figures.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    ledger = Ledger(
        tmp_path, Subject("some GPU", {"torch": "2"}, "abc", ""), {part.name: Run(DONE, 1.0, [], []) for part in every}
    )
    ledger.runs["poisson"] = Run(FAILED, 2.0, [], ["out of memory"])
    write(tmp_path, every, ledger)
    text = (tmp_path / "report.md").read_text()
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == [
        "What was asked for",
        "Ceilings",
        "Speech tokens",
        "Flow",
        "Vocoder",
        "Lengths and memory",
        "Correctness",
        "Served over gRPC",
        "The first sound, medians in ms",
        "Sentences in batches, without listeners",
        "Soak",
        "Plots",
    ]
    shown = (
        "**poisson: failed**",
        "out of memory",
        "| 1 | 0.53 | 32% |",
        "| engine | 0.34 | 0.603 |",
        "| llm.0 | 100 | 100 | 100 | 0.1 | 0.002 |",
    )
    assert [line for line in shown if line not in text] == []
    for plot in ("streams.png", "soak.png"):
        assert (tmp_path / plot).read_bytes().startswith(b"\x89PNG")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["figures"]["flow"]["kept"] == 5.1
    assert len(report["demands"]) == len(demands(figures))


def test_a_report_of_nothing_is_a_report(tmp_path: Path) -> None:
    every = parts(Plan(tmp_path, tmp_path / "model", 150_000_000_000))
    write(tmp_path, every, Ledger(tmp_path, Subject("some GPU", {}, "abc", "")))
    assert "**ceilings: not run**" in (tmp_path / "report.md").read_text()


def test_every_part_ends_within_four_minutes_but_the_soak() -> None:
    every = parts(Plan(Path("out"), Path("model"), 150_000_000_000))
    assert {part.name for part in every if part.limit > 240} == {"soak"}
    assert len({part.name for part in every}) == len(every)
    assert not [
        table
        for table in (stage_tables.ceilings, stage_tables.speech_tokens, stage_tables.memory, stage_tables.correctness)
        if table({})
    ]


def test_settings_follow_the_free_memory() -> None:
    assert [state_bytes(free) for free in (150_000_000_000, 40_000_000_000)] == [97_500_000_000, 20_000_000_000]
    with pytest.raises(ValueError, match="21000000000 bytes of GPU memory are free"):
        state_bytes(21_000_000_000)
    fast, slow = (settings(engines, 150_000_000_000) for engines in ENGINES)
    assert (fast["COSYSERVE_TOKEN2WAV_GPU_ENGINE"], slow["COSYSERVE_LLM_GPU_ENGINE"]) == ("paged", "readable")
    assert fast["COSYSERVE_ORCHESTRATOR_GUARDS"] == "false"
