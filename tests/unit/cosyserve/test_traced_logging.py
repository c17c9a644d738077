"""Lines of the log lead to the trace in which they were written."""

import logging

from opentelemetry.sdk.trace import TracerProvider

from cosyserve import telemetry
from cosyserve.telemetry import TracedFormatter

TRACE = "0af7651916cd43dd8448eb211c80319c"


def line(message: str) -> str:
    record = logging.LogRecord("services.llm", logging.INFO, __file__, 1, message, (), None)
    return TracedFormatter().format(record).split(" ", 2)[2]


def test_a_line_outside_of_a_trace_has_none() -> None:
    assert line("it begins") == "INFO services.llm: it begins"


def test_a_line_within_a_span_names_its_trace() -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("request"):
        trace = telemetry.trace_id()
        assert len(trace) == 32
        assert line("it goes on") == f"INFO services.llm trace={trace}: it goes on"


def test_the_trace_of_the_caller_is_named_where_nothing_is_recorded() -> None:
    caller = telemetry.incoming([("traceparent", f"00-{TRACE}-b7ad6b7169203331-00")])
    with telemetry.call_span("request", caller):
        assert line("it goes on") == f"INFO services.llm trace={TRACE}: it goes on"
