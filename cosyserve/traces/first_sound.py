"""What the first sound of a request was made of, from the spans of its trace.

The orchestrator records the terms of the first sound as spans that follow each other
(`first_sound.admission` ... `first_sound.held`); the stages record their work. A moment is
explained by the work in it. Between a border of a term and the work next to it the call or its
answer is on the way: that is named, too. What remains is explained by no span.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cosyserve.metrics.names import STAGES, TERMS
from cosyserve.traces.spans import AttributeValue, Span

Interval = tuple[int, int]
"""Start and end in nanoseconds."""
TERM_PREFIX = "first_sound."
FIRST_SOUND_MILLISECONDS = "first_sound.milliseconds"
"""Attribute of a request that sounds: whole milliseconds until then."""
GATEWAY_TERM = "gateway"
"""In front of the others where the request came in there."""
_OF_ITSELF = ("admission", "held")
"""Terms in which the orchestrator waits for no answer: they explain themselves."""
_WHOLE_SENTENCE = "llm.decode"
"""Its beginning, which the first sound needs, is the span llm.first_hop."""
_GATEWAY, _SESSIONS = "gateway ", ("gateway WEBSOCKET", "gateway WYOMING")
"""Spans of the gateway begin so. That of a session holds many requests, and starts none."""
_SPEAKING = (
    "SynthesisService/Synthesize",
    "SynthesisService/StreamingSynthesize",
    "SynthesisService/SynthesizeUnary",
    "SynthesisService/ConvertVoice",
    "RivaSpeechSynthesis/Synthesize",
    "RivaSpeechSynthesis/SynthesizeOnline",
    "CosyVoice/Inference",
)
"""The calls that speak, without the name of their package."""
_TEXT_ARRIVES = ("/StreamingSynthesize", "/SynthesizeOnline")
"""Those that may wait for text, which is no part of a first sound."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments in any of `intervals`, which may overlap; empty ones have none."""
    joined: list[Interval] = []
    for start, end in sorted(each for each in intervals if each[0] < each[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of `intervals` inside `window`."""
    cut = ((max(start, window[0]), min(end, window[1])) for start, end in intervals)
    return [each for each in cut if each[0] < each[1]]


def outside(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The moments of `window` in none of `intervals`."""
    gaps, at = [], window[0]
    for start, end in union(clipped(intervals, window)):
        if at < start:
            gaps.append((at, start))
        at = end
    return [*gaps, (at, window[1])] if at < window[1] else gaps


def nanoseconds(intervals: Iterable[Interval]) -> int:
    """How long they are together; they must not overlap."""
    return sum(end - start for start, end in intervals)


@dataclass(frozen=True)
class Term:
    """One term of a first sound. work: the spans of the stages inside it, by their start. way:
    when a call or an answer was on the way.
    """

    name: str
    start_ns: int
    end_ns: int
    work: tuple[Span, ...]
    way: tuple[Interval, ...]


@dataclass(frozen=True)
class FirstSound:
    """From the request to the first byte of its audio. terms: empty if there was no sound.
    unexplained: times in no span. end_ns: that of the request, if there was no sound.
    """

    request: Span
    """The call of the public service."""
    entry: Span
    """Where the request came in: `request`, or the span of the gateway around it."""
    start_ns: int
    """Of `entry`; of text that is written while it is spoken, when the first of it came."""
    end_ns: int
    terms: tuple[Term, ...]
    unexplained: tuple[Interval, ...]
    request_id: str

    @property
    def milliseconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def way_milliseconds(self) -> float:
        """What calls and answers spent between the services."""
        return sum(nanoseconds(term.way) for term in self.terms) / 1e6

    @property
    def unexplained_milliseconds(self) -> float:
        return nanoseconds(self.unexplained) / 1e6

    @property
    def unexplained_share(self) -> float:
        """Of the time to the first sound; 0 without sound."""
        return self.unexplained_milliseconds / self.milliseconds if self.terms and self.milliseconds else 0.0


def first_sounds(spans: Sequence[Span]) -> Iterator[FirstSound]:
    """The requests of one trace by their start, those without sound included."""
    by_id = {span.id: span for span in spans}
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    for request in sorted(filter(_speaks, spans), key=lambda span: span.start_ns):
        yield _first_sound(request, _entry(request, by_id), children)


def _speaks(span: Span) -> bool:
    return span.name.rpartition(".")[2] in _SPEAKING


def _entry(request: Span, by_id: dict[str, Span]) -> Span:
    entry, seen = request, {request.id}
    while (parent := by_id.get(entry.parent)) is not None and parent.name.startswith(_GATEWAY):
        if parent.name in _SESSIONS or parent.id in seen:
            break
        entry = parent
        seen.add(entry.id)
    return entry


def _first_sound(request: Span, entry: Span, children: dict[str, list[Span]]) -> FirstSound:
    inside = list(_below(request, children))
    marks = {span.name.removeprefix(TERM_PREFIX): span for span in inside if span.name.startswith(TERM_PREFIX)}
    if not marks:
        return FirstSound(request, entry, entry.start_ns, request.end_ns, (), (), _request_id(entry, request))
    work = sorted(
        (
            span
            for span in inside
            if span.id not in children and not span.name.startswith(TERM_PREFIX) and span.name != _WHOLE_SENTENCE
        ),
        key=lambda span: (span.start_ns, span.end_ns),
    )
    calls = [span for span in inside if span.id in children]
    terms = tuple(_term(name, marks[name], work, calls) for name in TERMS if name in marks)
    # The head of a request arrives before its call begins.
    begin = min(entry.start_ns, terms[0].start_ns)
    if request.name.endswith(_TEXT_ARRIVES):
        begin = terms[0].start_ns
    elif entry is not request:
        terms = (_gateway_term(entry, request, terms[0].start_ns, children), *terms)
    end = max(span.end_ns for span in marks.values())
    known = list[Interval]()
    for term in terms:
        window = (term.start_ns, term.end_ns)
        known += [window] if term.name in _OF_ITSELF else term.way
        known += clipped([(span.start_ns, span.end_ns) for span in term.work], window)
    unexplained = tuple(outside(known, (begin, end)))
    return FirstSound(request, entry, begin, end, terms, unexplained, _request_id(entry, request))


def _gateway_term(entry: Span, request: Span, until_ns: int, children: dict[str, list[Span]]) -> Term:
    """What the gateway did until the orchestrator had the call."""
    work = [span for span in children[entry.id] if span.id not in children and span.start_ns < request.start_ns]
    called = max((span.end_ns for span in work), default=request.start_ns)
    return Term(
        GATEWAY_TERM,
        entry.start_ns,
        until_ns,
        tuple(sorted(work, key=lambda span: span.start_ns)),
        ((called, request.start_ns),) if called < request.start_ns else (),
    )


def _term(name: str, mark: Span, work: Iterable[Span], calls: Iterable[Span]) -> Term:
    window = (mark.start_ns, mark.end_ns)
    # The other stages work at the same time, for later sound, which explains nothing here.
    stages = STAGES if name == "held" else (name,)
    ours = tuple(span for span in work if span.service in stages and clipped([(span.start_ns, span.end_ns)], window))
    if name in _OF_ITSELF:
        return Term(name, *window, ours, ())
    way = []
    for start, end in outside([(span.start_ns, span.end_ns) for span in ours], window):
        if end == window[1]:
            way.append((start, end))
        elif start == window[0]:
            # As far as the service has not taken the call, which may have been open before.
            taken = [span.start_ns for span in calls if span.service == name and start <= span.start_ns <= end]
            way.append((start, min(taken, default=end)))
    return Term(name, *window, ours, tuple(way))


def _below(span: Span, children: dict[str, list[Span]]) -> Iterator[Span]:
    """All spans below one; each once, whatever the file says of their parents."""
    seen, coming = {span.id}, list(children.get(span.id, ()))
    while coming:
        child = coming.pop()
        if child.id not in seen:
            seen.add(child.id)
            yield child
            coming += children.get(child.id, ())


def _request_id(entry: Span, request: Span) -> str:
    """The caller's own, else the id of the trace."""
    given: AttributeValue = entry.attributes.get("request.id") or request.attributes.get("request.id") or ""
    return str(given) or request.trace
