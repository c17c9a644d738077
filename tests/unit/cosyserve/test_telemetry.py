"""Traces are off unless an endpoint is set: the exporter is not even loaded then."""

import os
import subprocess
import sys
import threading

import pytest
from opentelemetry import trace

from cosyserve import telemetry
from cosyserve.telemetry import ENDPOINT_VARIABLES

PROGRAM = """
import sys
from cosyserve import telemetry
telemetry.configure("LlmService")
with telemetry.tracer.start_as_current_span("request") as span:
    exporters = any(name.startswith("opentelemetry.exporter") for name in sys.modules)
    print(span.is_recording(), bool(telemetry.outgoing()), exporters)
"""


@pytest.mark.parametrize(
    ("variable", "value", "outcome"),
    [
        (None, "", "False False False"),
        (ENDPOINT_VARIABLES[0], "", "False False False"),
        (ENDPOINT_VARIABLES[0], "http://127.0.0.1:1", "True True True"),
        (ENDPOINT_VARIABLES[1], "http://127.0.0.1:1", "True True True"),
    ],
)
def test_spans_are_recorded_and_sent_only_with_an_endpoint(variable: str | None, value: str, outcome: str) -> None:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")} | (
        {variable: value} if variable else {}
    )
    environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1"
    assert (
        subprocess.check_output([sys.executable, "-c", PROGRAM], env=environ, text=True, timeout=60).strip() == outcome
    )


def test_a_collector_that_cannot_be_reached_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        def shutdown(self) -> None:
            threading.Event().wait()

    monkeypatch.setattr(trace, "get_tracer_provider", Hanging)
    telemetry.shutdown(0.01)
