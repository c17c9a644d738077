"""`cosyserve trace`: what the first sound of a request was made of, from a file of traces."""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.commands.terminal.arguments import add_json
from cosyserve.commands.terminal.output import WrongUsage, print_json, printable
from cosyserve.errors import InvalidRequest, NotFound
from cosyserve.metrics.names import TERMS
from cosyserve.settings import TRACE_FILE
from cosyserve.traces.first_sound import GATEWAY_TERM, FirstSound, Interval, first_sounds
from cosyserve.traces.spans import Span, Traces, read_traces

HELP = "draw what the first sound of a request was made of"
_SHORTEST_PREFIX = 4
_CHOICES = ("newest", "slowest", "summary")
_WIDTH = 44
"""Columns of the drawing."""
_MOST_ROWS = 12
"""Rows of work in one term; the others are counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", default="", metavar="ID", help="of the request or the trace, or the first digits of the latter"
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--newest", action="store_true", help="the last request that sounded (default without ID)")
    chosen.add_argument("--slowest", action="store_true", help="the request whose first sound took longest")
    chosen.add_argument("--summary", action="store_true", help="all requests that sounded: each term at p50 and p95")
    parser.add_argument(
        "--file",
        type=Path,
        action="append",
        metavar="FILE",
        help="OTLP in JSON lines, as the services and OpenTelemetry's collector write it; may be given again "
        f"(default: the file named by {TRACE_FILE})",
    )
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    """Raises NotFound where no request is meant, InvalidRequest where several are."""
    if arguments.id and any(getattr(arguments, choice) for choice in _CHOICES):
        raise WrongUsage(f"ID names one request; it goes without --{', --'.join(_CHOICES)}")
    files = _files(arguments.file)
    traces = await asyncio.to_thread(read_traces, files)
    if traces.unreadable:
        print(f"cosyserve: {traces.unreadable} lines are no traces and were left out", file=sys.stderr)
    where = ", ".join(map(str, files))
    if arguments.summary:
        return _print_summary(_sounding(traces, where), as_json=arguments.json)
    found = _named(traces, arguments.id, where) if arguments.id else [_chosen(traces, where, arguments.slowest)]
    if arguments.json:
        print_json({"requests": [as_dict(sound) for sound in found]})
    else:
        print("\n\n".join("\n".join(map(printable, _drawing(sound))) for sound in found))
    return 0


def _files(given: list[Path] | None) -> list[Path]:
    if given:
        return given
    if not (named := os.environ.get(TRACE_FILE)):
        raise WrongUsage(f"no file of traces: --file FILE names one, or the variable {TRACE_FILE}")
    path = Path(named)
    # The services rename the file when it is large (cosyserve.traces.file_export.previous).
    before = path.with_name(f"{path.name}.1")
    return [before, path] if before.is_file() else [path]


def _all(traces: Traces) -> Iterable[FirstSound]:
    for spans in traces.spans.values():
        yield from first_sounds(spans)


def _sounding(traces: Traces, where: str) -> list[FirstSound]:
    found = [sound for sound in _all(traces) if sound.terms]
    if not found:
        raise NotFound(f"{where}: no request with a first sound in {len(traces.spans)} traces")
    return found


def _chosen(traces: Traces, where: str, slowest: bool) -> FirstSound:
    found = _sounding(traces, where)
    return max(found, key=lambda sound: sound.milliseconds if slowest else sound.start_ns)


def _named(traces: Traces, wanted: str, where: str) -> list[FirstSound]:
    """The requests of one trace, or those with this id."""
    prefix = wanted.lower()
    ids = [
        each for each in traces.spans if each == prefix or (len(prefix) >= _SHORTEST_PREFIX and each.startswith(prefix))
    ]
    if len(ids) > 1:
        raise InvalidRequest(f"{wanted} begins {len(ids)} traces: {', '.join(sorted(ids)[:5])}; give more digits")
    found = list(first_sounds(traces.spans[ids[0]])) if ids else []
    found = found or [sound for sound in _all(traces) if sound.request_id == wanted]
    if not found:
        raise NotFound(f"{where}: no request {wanted} in {len(traces.spans)} traces")
    return found


def as_dict(sound: FirstSound) -> dict[str, Any]:
    """For JSON: times in milliseconds from the request."""

    def since(moment: int) -> float:
        return (moment - sound.start_ns) / 1e6

    return {
        "request_id": sound.request_id,
        "trace_id": sound.request.trace,
        "method": sound.request.name,
        "start_unix_nanoseconds": sound.start_ns,
        "failed": sound.request.failed,
        "first_sound_milliseconds": sound.milliseconds if sound.terms else None,
        "terms": [
            {
                "term": term.name,
                "start": since(term.start_ns),
                "end": since(term.end_ns),
                "on_the_way_milliseconds": sum(end - start for start, end in term.way) / 1e6,
                "work": [
                    {
                        "name": span.name,
                        "service": span.service,
                        "start": since(span.start_ns),
                        "end": since(span.end_ns),
                    }
                    for span in term.work
                ],
            }
            for term in sound.terms
        ],
        "on_the_way_milliseconds": sound.way_milliseconds,
        "unexplained_milliseconds": sound.unexplained_milliseconds,
        "unexplained_share": sound.unexplained_share,
        "unexplained": [{"start": since(start), "end": since(end)} for start, end in sound.unexplained],
    }


def _print_summary(sounds: Sequence[FirstSound], *, as_json: bool) -> int:
    rows = {
        "first sound": [sound.milliseconds for sound in sounds],
        **{
            name: [sum((t.end_ns - t.start_ns) / 1e6 for t in sound.terms if t.name == name) for sound in sounds]
            for name in (GATEWAY_TERM, *TERMS)
        },
        "on the way": [sound.way_milliseconds for sound in sounds],
        "no span explains": [sound.unexplained_milliseconds for sound in sounds],
    }
    share = statistics.median(sound.unexplained_share for sound in sounds)
    if as_json:
        figures = {name.replace(" ", "_"): {"p50": _at(0.5, row), "p95": _at(0.95, row)} for name, row in rows.items()}
        print_json({"requests": len(sounds), "milliseconds": figures, "unexplained_share_p50": share})
        return 0
    print(f"{f'{len(sounds)} requests':<20}{'p50 ms':>10}{'p95 ms':>10}")
    for name, row in rows.items():
        print(f"{name:<20}{_at(0.5, row):10.1f}{_at(0.95, row):10.1f}")
    print(f"\nno span explains {100 * share:.1f} % of the first sound (median)")
    return 0


def _at(share: float, values: Sequence[float]) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


@dataclass(frozen=True)
class _Scale:
    """Columns for moments. start_ns, end_ns: the first and the last one that is drawn."""

    start_ns: int
    end_ns: int

    def bar(self, intervals: Iterable[Interval], full: str = "█") -> str:
        """A row in which the columns of `intervals` are filled; a short one has a thin mark."""
        columns = [" "] * _WIDTH
        length = max(self.end_ns - self.start_ns, 1)
        for start, end in intervals:
            first, last = (_WIDTH * (moment - self.start_ns) / length for moment in (start, end))
            if last <= 0 or first >= _WIDTH:
                continue
            begin, until = max(round(first), 0), min(round(last), _WIDTH)
            for column in range(begin, until):
                columns[column] = full
            if begin >= until:
                columns[min(begin, _WIDTH - 1)] = "▏"
        return "".join(columns)


def _drawing(sound: FirstSound) -> Iterator[str]:
    """The drawing of one request, without a newline at the ends of rows."""
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(sound.start_ns / 1e9))
    yield f"request {sound.request_id}, {_method(sound.request)}, {begun} UTC"
    yield f"trace   {sound.request.trace}"
    whole = (max(sound.request.end_ns, sound.entry.end_ns) - sound.start_ns) / 1e6
    if not sound.terms:
        yield f"no sound; over after {whole:.1f} ms{', failed' if sound.request.failed else ''}"
        return
    yield f"first sound after {sound.milliseconds:.1f} ms, all of it after {whole:.1f} ms"
    yield ""
    scale = _Scale(sound.start_ns, sound.end_ns)
    yield f"{'':<26}{'ms':>9}{'':>8} |{'0':<{_WIDTH - 10}}{f'{sound.milliseconds:.1f}':>10}|"
    for term in sound.terms:
        yield _row(term.name, [(term.start_ns, term.end_ns)], sound, scale)
        yield from _work_rows(term.work, sound, scale)
        if term.way:
            yield _row("  on the way", term.way, sound, scale, "·", share=False)
    yield ""
    yield f"{'on the way, together':<26}{sound.way_milliseconds:9.1f}"
    yield _row("no span explains", sound.unexplained, sound, scale, "?")


def _work_rows(work: Sequence[Span], sound: FirstSound, scale: _Scale) -> Iterator[str]:
    for span in work[:_MOST_ROWS]:
        hop = span.attributes.get("hop")
        name = f"  {_method(span)}" if hop is None else f"  {span.name} {hop}"
        yield _row(name, [(span.start_ns, span.end_ns)], sound, scale, "▒", share=False)
    if len(work) > _MOST_ROWS:
        yield f"  and {len(work) - _MOST_ROWS} more"


def _row(
    name: str, intervals: Sequence[Interval], sound: FirstSound, scale: _Scale, full: str = "█", *, share: bool = True
) -> str:
    milliseconds = sum(end - start for start, end in intervals) / 1e6
    part = f"{100 * milliseconds / sound.milliseconds:6.1f} %" if share and sound.milliseconds else ""
    return f"{name[:25]:<26}{milliseconds:9.1f}{part:>8} |{scale.bar(intervals, full)}|"


def _method(span: Span) -> str:
    """`Synthesize` of cosyserve.v1.SynthesisService/Synthesize; other names as they are."""
    return span.name.rpartition("/")[2]
