"""The parts of a first sound: each millisecond of a made trace has one explanation, or none."""

from pathlib import Path

import pytest

from cosyserve.traces.first_sound import FirstSound, first_sounds, nanoseconds, outside, union
from cosyserve.traces.spans import read_traces
from tests.unit.cosyserve.traces.made_trace import BEGIN_NS, ROWS, TRACE, Row, line, written


def sounds(tmp_path: Path, rows: tuple[Row, ...] = ROWS) -> list[FirstSound]:
    traces = read_traces([written(tmp_path / "spans.jsonl", line(rows))])
    return list(first_sounds(traces.spans[TRACE]))


def milliseconds(intervals: tuple[tuple[int, int], ...]) -> list[tuple[float, float]]:
    return [((start - BEGIN_NS) / 1e6, (end - BEGIN_NS) / 1e6) for start, end in intervals]


def test_every_millisecond_is_work_or_on_the_way_or_unexplained(tmp_path: Path) -> None:
    (sound,) = sounds(tmp_path)
    assert (sound.request_id, sound.request.trace, sound.milliseconds) == ("mine-1", TRACE, 200)
    assert [term.name for term in sound.terms] == ["gateway", "admission", "frontend", "llm", "token2wav", "held"]
    assert {term.name: milliseconds(term.way) for term in sound.terms} == {
        "gateway": [(3, 5)],
        "admission": [],
        "frontend": [(7, 9), (18, 20)],
        "llm": [(20, 22), (96, 100)],
        "token2wav": [(100, 103), (178, 180)],
        "held": [],
    }
    assert milliseconds(sound.unexplained) == [(9.5, 10), (50, 60), (150, 155)]
    assert sound.unexplained_share == pytest.approx(15.5 / 200)
    assert sound.way_milliseconds == 17


def test_work_of_later_sound_explains_nothing_of_the_first(tmp_path: Path) -> None:
    (sound,) = sounds(tmp_path)
    token2wav = next(term for term in sound.terms if term.name == "token2wav")
    assert [span.name for span in token2wav.work] == ["token2wav.queue", "token2wav.flow", "token2wav.vocoder"]


def test_without_the_gateway_the_call_is_where_the_request_came_in(tmp_path: Path) -> None:
    rows = tuple(row for row in ROWS if row[0] != "gateway")
    (sound,) = sounds(tmp_path, rows)
    assert (sound.entry.name, sound.milliseconds) == ("cosyserve.v1.SynthesisService/Synthesize", 195)
    assert sound.terms[0].name == "admission"


def test_a_session_of_the_gateway_is_not_the_start_of_its_requests(tmp_path: Path) -> None:
    rows = (("gateway", "01", "", "gateway WEBSOCKET", -60_000, 500), *ROWS[1:])
    (sound,) = sounds(tmp_path, rows)
    assert sound.milliseconds == 195


def test_waiting_for_text_is_no_part_of_a_first_sound(tmp_path: Path) -> None:
    calls = {"cosyserve.v1.SynthesisService/Synthesize": "cosyserve.v1.SynthesisService/StreamingSynthesize"}
    early = {"01": -9_000, "02": -9_000, "10": -8_000}
    rows = tuple(
        (service, span, parent, calls.get(name, name), early.get(span, start), end)
        for service, span, parent, name, start, end in ROWS
    )
    (sound,) = sounds(tmp_path, rows)
    assert (sound.milliseconds, sound.terms[0].name, sound.request_id) == (195, "admission", "mine-1")
    assert milliseconds(sound.unexplained) == [(9.5, 10), (50, 60), (150, 155)]


def test_spans_that_are_their_own_ancestors_end_the_search(tmp_path: Path) -> None:
    loops = {"01": "10", "21": "21", "20": "21"}
    rows = tuple((row[0], row[1], loops.get(row[1], row[2]), *row[3:]) for row in ROWS)
    (sound,) = sounds(tmp_path, rows)
    assert sound.milliseconds == 200


def test_a_request_without_sound_has_no_terms(tmp_path: Path) -> None:
    rows = tuple(row for row in ROWS if not row[3].startswith("first_sound."))
    (sound,) = sounds(tmp_path, rows)
    assert (sound.terms, sound.unexplained, sound.unexplained_share) == ((), (), 0.0)


def test_intervals() -> None:
    assert union([(5, 9), (1, 3), (3, 4), (8, 12), (7, 7)]) == [(1, 4), (5, 12)]
    assert outside([(2, 3), (0, 1), (5, 20)], (0, 10)) == [(1, 2), (3, 5)]
    assert outside([], (0, 10)) == [(0, 10)]
    assert nanoseconds([(0, 3), (5, 6)]) == 4
