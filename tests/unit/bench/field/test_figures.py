"""The arithmetic of the benchmark of the field, against cases that were computed by hand."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.field.answer import ANSWERED, FAILED, REFUSED, Answer, Listener
from bench.field.arrivals import Request, Schedule
from bench.field.callers import Heard
from bench.field.figures import Row, interval, intervals, most_at_once, row
from bench.field.loads import HTTP, Load
from bench.field.merge import ANY_SAMPLE, main, merged, read, text
from bench.parts.part import write

SILENCE = bytes(4_800)
"""0.1 s."""
LOAD = Load("10", HTTP, 10.0, 3, 1.0)


def loud(before: int, samples: int = 2_400) -> bytes:
    """So many samples, of which the first `before` are silence."""
    values = np.full(samples, 8_000, "<i2")
    values[:before] = 0
    return values.tobytes()


def test_percentiles_lie_between_neighbours() -> None:
    found = intervals([30.0, 10.0, 20.0, 40.0, 50.0])
    # Places 2, 3.8 and 3.96 of five sorted values.
    assert [round(found[name][0], 9) for name in ("p50", "p95", "p99")] == [30.0, 48.0, 49.6]
    assert intervals([]) == {}


def test_the_interval_of_three_values_is_that_of_all_27_resamples() -> None:
    # The median of a resample of {0, 1, 10} is 0 in 7 of 27, 1 in 13 and 10 in 7.
    assert interval([0.0, 1.0, 10.0], 50) == (1.0, 0.0, 10.0)
    # 20 % left out on each side leave outer values at both ends, 30 % the median.
    assert interval([0.0, 1.0, 10.0], 50, coverage=0.6) == (1.0, 0.0, 10.0)
    assert interval([0.0, 1.0, 10.0], 50, coverage=0.4) == (1.0, 1.0, 1.0)


def test_an_interval_is_the_same_each_time_and_one_value_has_none() -> None:
    values = list(np.random.default_rng(0).exponential(30.0, 200))
    assert interval(values, 95, name="10") == interval(values, 95, name="10")
    assert interval([7.0] * 20, 99) == (7.0, 7.0, 7.0)
    value, low, high = interval(values, 95)
    assert low < value < high


def test_an_underrun_is_what_a_player_from_the_first_byte_on_lacks() -> None:
    listener = Listener(at=5.0, window=(5.5, 6.30))
    # From 0.40 it plays until 0.60; the third piece comes 0.15 s later, the fourth in time.
    for now, audio in ((0.40, SILENCE), (0.45, loud(1_200)), (0.75, SILENCE), (0.84, SILENCE), (1.31, SILENCE)):
        listener.arrived(now, audio)
    answer = listener.answer(7, counted=True, late=0.001, end=1.4)
    assert (answer.state, answer.number, answer.first) == (ANSWERED, 7, 0.40)
    assert answer.dry == 2
    assert answer.longest_dry == pytest.approx(1.31 - 0.95)
    assert answer.audio == pytest.approx(0.5)
    # 0.1 s of silence and half of the second piece before the first loud sample.
    assert answer.audible == pytest.approx(0.40 + 0.1 + 0.05)
    # Due at 5.0: the first two came before 5.5, the last one after 6.30.
    assert answer.in_window == pytest.approx(0.2)


def test_half_a_sample_waits_for_its_other_half() -> None:
    listener, whole = Listener(0.0, (0.0, 1.0), any_sample=True), loud(0, 100)
    for now, audio in ((0.1, whole[:1]), (0.2, whole[1:151]), (0.3, whole[151:])):
        listener.arrived(now, audio)
    answer = listener.answer(0, counted=True, late=0.0, end=0.3)
    assert (answer.first, answer.audible) == (0.2, 0.2)
    assert answer.audio * 24_000 == pytest.approx(100)


def test_spans_overlap_as_often_as_they_do() -> None:
    assert most_at_once([]) == 0
    # One that ends as another begins is not under way with it.
    assert most_at_once([(0, 2), (2, 3), (1, 4), (1.5, 1.75)]) == 3


def heard(*answers: Answer) -> Row:
    requests = tuple(Request(one.number, one.number / 10, "", "", 0, one.counted) for one in answers)
    return row(LOAD, Schedule(requests, 0.1, 2.1), Heard(answers, 0.25), any_sample=True)


def spoken(number: int, first: float, *, counted: bool = True, dry: int = 0, audio: float = 2.0) -> Answer:
    return Answer(
        number, counted, ANSWERED, 0.001 * number, first + 1, first, first, dry, 0.2 * dry, audio, in_window=audio
    )


def test_a_row_counts_what_came_after_the_warm_up() -> None:
    found = heard(
        spoken(0, 9.0, counted=False, dry=5),
        spoken(1, 0.020),
        spoken(2, 0.030, dry=2, audio=4.0),
        Answer(3, True, REFUSED, 0.003, 0.01, reason="no place"),
        Answer(4, True, FAILED, 0.004, 0.01, reason="gone"),
    )
    assert (found.requests, found.answered, found.refused, found.failed) == (4, 2, 1, 1)
    assert found.first["p50"][0] == pytest.approx(25.0)
    assert (found.underruns, found.longest_dry) == (1, pytest.approx(400.0))
    assert found.mean_audio == pytest.approx(3.0)
    # All sound that arrived within the two seconds, that of the warm-up too.
    assert found.audio_per_second == pytest.approx(8.0 / 2.0)
    assert found.at_once == 4
    assert found.reasons == ("gone",)
    assert found.client_bound
    assert not dataclasses.replace(found, late=1.0).client_bound
    assert dataclasses.replace(found, late=1.0, busy=0.9).client_bound


def test_a_load_without_an_answer_is_an_error_that_says_why() -> None:
    with pytest.raises(ValueError, match="no request of 1 was answered: no place"):
        heard(Answer(0, True, REFUSED, 0.0, 0.01, reason="no place"))


def test_answers_that_never_become_audible_are_counted() -> None:
    silent = dataclasses.replace(spoken(2, 0.500), audible=None)
    found = heard(spoken(0, 0.020), spoken(1, 0.030), silent)
    assert (found.answered, found.inaudible) == (3, 1)
    assert found.audible["p99"][0] < 30.0 < found.first["p99"][0]
    written = {**part("http-low"), "rows": [found.as_dict()]}
    assert Row.read(found.as_dict()) == found
    note = "* http-low 10: 1 of 3 answers never became audible; the percentiles of audible are of the others."
    assert note in text(merged([written]))
    assert not [line for line in text(merged([part("http-low")])) if "never became audible" in line]


def part(name: str, **changes: Any) -> dict[str, Any]:
    subject = {"machine": "a GPU", "versions": {"torch": "2"}, "source": "abc", "commit": "1"}
    conditions = {"model": "M", "backend": "torch", "device": "H", "requests": 3, "seconds": 1.0, "seed": 0}
    return {
        "part": name,
        "about": "10 requests a second",
        "engines": ["llm torch"],
        "start_seconds": 12.0,
        "subject": {key: changes.get(key, value) for key, value in subject.items()},
        "conditions": {key: changes.get(key, value) for key, value in conditions.items()},
        "rows": [heard(spoken(0, 0.020), spoken(1, 0.030)).as_dict()],
    }


@pytest.mark.parametrize(
    "other",
    [
        {"machine": "another"},
        {"source": "def"},
        {"model": "N"},
        {"versions": {"torch": "3"}},
        {"seed": 1},
        {"device": "I"},
    ],
)
def test_parts_that_do_not_belong_together_are_not_merged(other: dict[str, Any]) -> None:
    (name,) = other
    with pytest.raises(ValueError, match=f"http-low and http-high differ in {name}: "):
        merged([part("http-low"), part("http-high", **other)])


def test_a_part_that_names_no_device_is_not_one_of_this_device() -> None:
    unnamed = part("grpc-low")
    del unnamed["conditions"]["device"]
    for parts in ([part("http-low"), unnamed], [unnamed, part("http-low")]):
        with pytest.raises(ValueError, match="differ in device: "):
            merged(parts)


def test_the_report_names_the_device_and_what_was_chosen_for_it() -> None:
    chosen = [{"derived_settings": {"COSYSERVE_A": "1", "COSYSERVE_B": number}} for number in "22"]
    parts = [part(name) | settings for name, settings in zip(("http-low", "lengths"), chosen, strict=True)]
    report = text(merged(parts))
    assert "* Computed on H." in report
    assert "* Chosen for this machine: COSYSERVE_A=1 COSYSERVE_B=2." in report
    parts[1]["derived_settings"] = {"COSYSERVE_A": "3"}
    report = text(merged(parts))
    assert "* Chosen for this machine: COSYSERVE_A=1 COSYSERVE_B=2 (http-low)." in report
    assert "* Chosen for this machine: COSYSERVE_A=3 (lengths)." in report


def test_parts_are_merged_into_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    # Two commits of one source are one subject.
    for file, content in zip(files, (part("http-low"), part("grpc-low", commit="2")), strict=True):
        write(file, content)
    assert main([*map(str, files), "--json", str(tmp_path / "all.json")]) == 0
    report = capsys.readouterr().out
    assert ANY_SAMPLE in report
    assert "## http-low" in report
    assert "## grpc-low" in report
    assert "| 10 | 2 | 0 | 0 | 25.0 (20.0-30.0) |" in report
    assert "12 s (http-low)" in report
    assert main([str(files[0]), str(files[0])]) == 2
    assert "the part http-low is there twice" in capsys.readouterr().err
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(ValueError, match="is no part of this benchmark"):
        read(tmp_path / "c.json")
    earlier = part("lengths")
    for field in ("hints", "spent"):
        del earlier["rows"][0][field]
    assert text(merged([earlier])) == text(merged([part("lengths")]))
    measured_by_client = part("lengths")
    measured_by_client["rows"][0]["late"] = 3.0
    assert "**The caller may be what was measured**" in "\n".join(text(merged([measured_by_client])))
