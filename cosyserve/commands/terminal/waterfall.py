"""The first sound of a request as rows of text: each term, the work inside it, what was on the way,
and what no span explains.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cosyserve.traces.first_sound import FirstSound
from cosyserve.traces.intervals import Interval
from cosyserve.traces.spans import Span

_WIDTH = 44
"""Columns of the drawing."""
_MOST_ROWS = 12
"""Rows of work in one term; the others are counted."""


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


def lines(sound: FirstSound) -> Iterator[str]:
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
