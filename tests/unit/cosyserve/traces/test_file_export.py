"""Spans in a file: what the services write is what the command reads, and the file stays small."""

import multiprocessing
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from cosyserve.errors import InvalidRequest, SettingsError
from cosyserve.traces.file_export import FileSpanExporter, previous
from cosyserve.traces.spans import read_traces
from tests.unit.cosyserve.traces.made_trace import BEGIN_NS, TRACE, line, written


def provider(path: Path, most_bytes: int = 1 << 20, service: str = "llm") -> TracerProvider:
    made = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(FileSpanExporter(path, most_bytes)))
    return made


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    tracer = provider(path).get_tracer("test")
    with tracer.start_as_current_span("whole") as whole:
        whole.set_status(StatusCode.ERROR)
        with tracer.start_as_current_span("part") as part:
            part.set_attributes({"hop": 3, "cached": True, "language": "en", "share": 0.5})
    context = whole.get_span_context()
    traces = read_traces([path])
    assert set(traces.spans) == {format_trace_id(context.trace_id)}
    inner, outer = traces.spans[format_trace_id(context.trace_id)]
    assert (outer.id, outer.parent, outer.failed) == (format_span_id(context.span_id), "", True)
    assert (inner.name, inner.parent, inner.service, inner.failed) == ("part", outer.id, "llm", False)
    assert inner.attributes == {"hop": 3, "cached": True, "language": "en", "share": 0.5}
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


def write_spans(path: Path, count: int) -> None:
    tracer = provider(path, most_bytes=20_000, service=str(count)).get_tracer("test")
    for number in range(count):
        tracer.start_span(f"span {number}").end()


def test_several_processes_share_a_file_that_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    # Few enough that nothing is dropped with the file before the previous one.
    writers = [multiprocessing.get_context("spawn").Process(target=write_spans, args=(path, 25)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert path.stat().st_size <= 20_000
    assert previous(path).stat().st_size <= 20_000
    traces = read_traces([previous(path), path])
    assert (len(traces.spans), traces.unreadable) == (50, 0)


def test_a_clock_that_was_set_back_makes_nothing_shorter_than_no_time(tmp_path: Path) -> None:
    rows = (("llm", "30", "10", "llm.prefill", 50.0, 20.0),)
    (span,) = read_traces([written(tmp_path / "spans.jsonl", line(rows))]).spans[TRACE]
    assert span.milliseconds == 0


def test_a_place_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"COSYSERVE_TRACE_FILE='.*/nowhere/spans.jsonl' cannot be written: No such"
    ):
        FileSpanExporter(tmp_path / "nowhere" / "spans.jsonl")


def test_a_disk_that_fails_later_loses_spans_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "spans"
    folder.mkdir()
    exporter = FileSpanExporter(folder / "spans.jsonl")
    (folder / "spans.jsonl").unlink()
    folder.rmdir()
    assert [exporter.export([]) for _ in range(2)] == [SpanExportResult.FAILURE] * 2
    assert len([record for record in caplog.records if "spans are lost" in record.message]) == 1


def test_lines_that_are_no_traces_are_counted(tmp_path: Path) -> None:
    cut = line()[:200]
    traces = read_traces([written(tmp_path / "spans.jsonl", line(), '{"resourceMetrics": []}', "", cut)])
    assert (set(traces.spans), traces.unreadable) == ({TRACE}, 2)
    start = f'"{BEGIN_NS}"'
    assert start in line()
    for broken in ("[" * 100_000, *(line().replace(start, time) for time in ("Infinity", f'"{10**30}"', "-1"))):
        assert read_traces([written(tmp_path / "spans.jsonl", line(), broken)]).unreadable == 1
    with pytest.raises(InvalidRequest, match="no line of 1 is an export of traces"):
        read_traces([written(tmp_path / "other.jsonl", "hello")])
