"""A trace made by hand: a request through the gateway whose every millisecond is known."""

import json
from pathlib import Path
from typing import Any

TRACE = "0af7651916cd43dd8448eb211c80319c"
BEGIN_NS = 1_795_000_000_000_000_000
GENERATE, DECODE = "cosyserve.v1.LlmService/Generate", "cosyserve.v1.Token2WavService/DecodeStream"
Row = tuple[str, str, str, str, float, float]
"""Service, id, parent, name, start and end in milliseconds."""
ROWS: tuple[Row, ...] = (
    ("gateway", "01", "", "gateway POST", 0, 500),
    ("gateway", "02", "01", "gateway.request", 0, 3),
    ("orchestrator", "10", "01", "cosyserve.v1.SynthesisService/Synthesize", 5, 480),
    ("orchestrator", "11", "10", "first_sound.admission", 5, 7),
    ("orchestrator", "12", "10", "first_sound.frontend", 7, 20),
    ("orchestrator", "13", "10", "first_sound.llm", 20, 100),
    ("orchestrator", "14", "10", "first_sound.token2wav", 100, 180),
    ("orchestrator", "15", "10", "first_sound.held", 180, 200),
    ("frontend", "20", "10", "cosyserve.v1.FrontendService/Analyze", 9, 19),
    # One millisecond after the call came nothing is known of.
    ("frontend", "21", "20", "frontend.analyze", 10, 18),
    ("frontend", "22", "10", "cosyserve.v1.FrontendService/GetVoice", 9, 9.5),
    ("llm", "30", "10", GENERATE, 22, 400),
    ("llm", "31", "30", "llm.queue", 22, 30),
    ("llm", "32", "30", "llm.prefill", 30, 50),
    # Ten milliseconds between the two that no span explains.
    ("llm", "33", "30", "llm.first_hop", 60, 96),
    # Goes on while token2wav works, which explains nothing of token2wav's time.
    ("llm", "34", "30", "llm.decode", 60, 400),
    ("token2wav", "40", "10", DECODE, 25, 470),
    ("token2wav", "41", "40", "token2wav.queue", 103, 120),
    ("token2wav", "42", "40", "token2wav.flow", 120, 150),
    ("token2wav", "43", "40", "token2wav.vocoder", 155, 178),
    ("token2wav", "44", "40", "token2wav.flow", 300, 350),
)


def line(rows: tuple[Row, ...] = ROWS, trace: str = TRACE, begin_ns: int = BEGIN_NS, request_id: str = "mine-1") -> str:
    """One export of these spans, as a line without its end."""
    return json.dumps({"resourceSpans": [_resource(row, trace, begin_ns, request_id) for row in rows]})


def _resource(row: Row, trace: str, begin_ns: int, request_id: str) -> dict[str, Any]:
    service, span, parent, name, start, end = row
    attributes = [_text("request.id", request_id)] if not parent else []
    if name.startswith("token2wav."):
        attributes = [{"key": "hop", "value": {"intValue": "0"}}]
    made: dict[str, Any] = {
        "traceId": trace,
        "spanId": span * 8,
        "name": name,
        "startTimeUnixNano": str(begin_ns + round(1e6 * start)),
        "endTimeUnixNano": str(begin_ns + round(1e6 * end)),
        "attributes": attributes,
        "status": {},
    }
    if parent:
        made["parentSpanId"] = parent * 8
    return {"resource": {"attributes": [_text("service.name", service)]}, "scopeSpans": [{"spans": [made]}]}


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    return path
