"""What the listener of one request hears and when: the time to the first sound and its parts, and a
player that runs dry where sound is late. Of one request, for the metrics of all.

The player begins 40 ms after the first byte. It is not the server's gap if the caller had not yet
written what was to be spoken, or took nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cosyserve import telemetry
from cosyserve.metrics import names
from cosyserve.metrics.instruments import counter, histogram
from cosyserve.rpc.records.call_record import CallRecord, current_record
from cosyserve.telemetry import Timing
from cosyserve.traces.first_sound import FIRST_SOUND_MILLISECONDS, TERM_PREFIX

BUFFER_SECONDS = 0.04
LEAST_GAP_SECONDS = 0.001
"""Less is the clock's own noise."""
LEAD_SECONDS = 0.4
"""Text that comes less than this before its player runs dry came too late to be spoken in time."""
_FIRST_BYTE, _FIRST_AUDIBLE = histogram(names.FIRST_BYTE), histogram(names.FIRST_AUDIBLE)
_TERM, _FACTOR = histogram(names.FIRST_SOUND_TERM), histogram(names.REAL_TIME_FACTOR)
_SLACK = histogram(names.PLAYBACK_SLACK)
_GAPS, _GAP_SECONDS = counter(names.GAPS), counter(names.GAP_SECONDS)


@dataclass
class FirstSound:
    """When each stage was done for the first sound, in seconds of a monotonic clock; None: it had
    nothing to do, or is not done.
    """

    admitted: float
    analyzed: float | None = None
    written: float | None = None
    decoded: float | None = None


@dataclass
class Heard:
    """Made when the request is admitted. call: of the request. now: a monotonic clock, in
    seconds.
    """

    call: CallRecord = field(default_factory=current_record)
    now: Callable[[], float] = time.monotonic
    first: FirstSound = field(init=False)

    def __post_init__(self) -> None:
        self.first = FirstSound(self.now())
        self._plays_until: float | None = None
        self._taken = 0.0
        self._known: dict[int, float] = {}
        self._sentence_known: float | None = None
        self._whole = True
        self._audible = False

    def analyzed(self, sentence: int) -> None:
        """The text of a sentence is known, at least its beginning."""
        self._known.setdefault(sentence, self.now())
        if self.first.analyzed is None:
            self.first.analyzed = self.now()

    def written(self) -> None:
        """There are speech tokens."""
        if self.first.written is None:
            self.first.written = self.now()

    def decoded(self) -> None:
        """There is sound."""
        if self.first.decoded is None:
            self.first.decoded = self.now()

    def begins(self, sentence: int, *, whole: bool = True) -> None:
        """What is sent from now on is of this sentence. whole: it is not being written any more."""
        self._sentence_known = self._known.pop(sentence, None)
        self._whole = whole

    def sent(self, seconds: float) -> None:
        """So much sound is about to be sent."""
        now = self.now()
        if self._plays_until is None:
            self._plays_until = now + BUFFER_SECONDS
            self._count_first(now)
        else:
            _SLACK.record(max(self._plays_until - now, 0.0))
            self._count_gap(now, self._plays_until)
        self._sentence_known = None
        self._plays_until = max(self._plays_until, now) + seconds

    def taken(self) -> None:
        """The caller has taken what was sent."""
        self._taken = self.now()

    def audible_at(self, moment: float) -> None:
        """When the first audible sample is played, in seconds of the clock; only the first call
        counts.
        """
        if not self._audible:
            self._audible = True
            _FIRST_AUDIBLE.record(moment - self.call.asked, method=self.call.method)

    def finished(self, real_time_factor: float) -> None:
        """All of it was sent; factor: seconds of the request for each of its audio, 0 without."""
        if real_time_factor and not self.call.text_arrives:
            _FACTOR.record(real_time_factor)

    def _count_first(self, now: float) -> None:
        asked, first = self.call.asked, self.first
        _FIRST_BYTE.record(now - asked, method=self.call.method)
        before, terms = asked, list[tuple[str, float, float]]()
        for term, done in zip(
            names.TERMS, (first.admitted, first.analyzed, first.written, first.decoded, now), strict=True
        ):
            # A stage that had nothing to do took no time; a silence that the text begins with is
            # sent before anything is spoken.
            until = min(max(before if done is None else done, before), now)
            _TERM.record(until - before, term=term)
            terms.append((term, before, until))
            before = until
        _trace(terms, now)

    def _count_gap(self, now: float, dry: float) -> None:
        late = now - max(dry, self._taken)
        text_was_late = not self._whole or (
            self._sentence_known is not None and self._sentence_known > dry - LEAD_SECONDS
        )
        if late > LEAST_GAP_SECONDS and not (self.call.text_arrives and text_was_late):
            _GAPS.add()
            _GAP_SECONDS.add(late)


def _trace(terms: list[tuple[str, float, float]], now: float) -> None:
    """Record the parts of a first sound that took time as spans of the request. terms: name, begin
    and end in seconds of the clock that says `now`.
    """
    wall_ns = time.time_ns()
    for term, *moments in terms:
        begin_ns, end_ns = (wall_ns - int(1e9 * (now - moment)) for moment in moments)
        if begin_ns < end_ns:
            telemetry.record(Timing(f"{TERM_PREFIX}{term}", begin_ns, end_ns))
    # By this a collector knows slow requests, whose spans last as long as their audio.
    telemetry.annotate(FIRST_SOUND_MILLISECONDS, round(1000 * (now - terms[0][1])))
