"""Spans out of a file of OTLP JSON lines, as the services and OpenTelemetry's collector write them:
each line one export request, ids in hexadecimal, times in nanoseconds since the epoch.

Source: the JSON encoding of OTLP 1.x (opentelemetry-proto, trace.proto).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosyserve.errors import InvalidRequest

AttributeValue = str | int | float | bool
_ERROR = 2
"""STATUS_CODE_ERROR of OTLP."""


@dataclass(frozen=True)
class Span:
    """One piece of work of one service. start_ns, end_ns: nanoseconds since the epoch. parent:
    empty without one.
    """

    trace: str
    id: str
    parent: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    failed: bool = False
    attributes: dict[str, AttributeValue] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(frozen=True)
class Traces:
    """The spans of a file, by trace id. unreadable: number of lines that are no OTLP, such as the
    last one of a process that was killed.
    """

    spans: dict[str, list[Span]]
    unreadable: int = 0


def read_traces(paths: Iterable[Path]) -> Traces:
    """All spans in these files, those of one trace together. Raises OSError, and InvalidRequest if
    there are lines and none of them is OTLP.
    """
    spans: dict[str, list[Span]] = {}
    lines = unreadable = 0
    paths = list(paths)
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in filter(str.strip, file):
                lines += 1
                try:
                    found = list(_spans_of(json.loads(line)))
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                    unreadable += 1
                    continue
                for span in found:
                    spans.setdefault(span.trace, []).append(span)
    if lines and lines == unreadable:
        names = ", ".join(map(str, paths))
        raise InvalidRequest(f"{names}: no line of {lines} is an export of traces in OTLP JSON")
    return Traces(spans, unreadable)


def _spans_of(export: Any) -> Iterator[Span]:
    for resource in export["resourceSpans"]:
        service = str(_attributes(resource.get("resource", {}).get("attributes", ())).get("service.name", ""))
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                start, end = _moment(span["startTimeUnixNano"]), _moment(span["endTimeUnixNano"])
                yield Span(
                    trace=span["traceId"].lower(),
                    id=span["spanId"].lower(),
                    parent=span.get("parentSpanId", "").lower(),
                    name=span["name"],
                    service=service,
                    start_ns=start,
                    # A clock that was set back while it ran: nothing lasts less than no time.
                    end_ns=max(start, end),
                    failed=span.get("status", {}).get("code") in (_ERROR, "STATUS_CODE_ERROR"),
                    attributes=_attributes(span.get("attributes", ())),
                )


def _moment(value: Any) -> int:
    """Raises ValueError for what is no number of nanoseconds in 64 bits."""
    if not 0 <= (nanoseconds := int(value)) < 1 << 64:
        raise ValueError("no time since the epoch")
    return nanoseconds


def _attributes(pairs: Iterable[Any]) -> dict[str, AttributeValue]:
    """Those with a plain value."""
    found: dict[str, AttributeValue] = {}
    for pair in pairs:
        value = pair.get("value", {})
        if "intValue" in value:
            found[pair["key"]] = int(value["intValue"])
        else:
            for kind in ("stringValue", "boolValue", "doubleValue"):
                if kind in value:
                    found[pair["key"]] = value[kind]
    return found
