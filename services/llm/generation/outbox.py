"""Delivery from the engine to the reader: tokens grouped into hops, with the sentence's timings."""

import contextlib
import time
from collections.abc import Callable, Sequence

from cosyserve.errors import NonFinite
from cosyserve.generations.generation import SilentRuns
from cosyserve.telemetry import Timing
from services.llm.generation.request import FinishReason, Grouping, Hop, Outcome
from services.llm.generation.script import Script

Deliver = Callable[[Hop | Exception], None]
"""Hands a hop, or the error that ended the sequence, to the reader. Called from the engine's
thread; must not block.
"""


class Outbox:
    """Groups the tokens of a sentence into hops, with one wake-up of the reader per hop, and
    measures its phases. Created when the request is accepted; used by one thread at a time.

    A hop has as many spoken tokens as the reader needs for its next step, whatever silence the
    model generates between them. replay: as in `Generation`; a silence may go on after it.
    """

    def __init__(self, deliver: Deliver, grouping: Grouping, replay: Sequence[int] = ()) -> None:
        self._deliver, self._grouping = deliver, grouping
        self._runs = SilentRuns(grouping.silent)
        self._runs.extend(replay)
        self._due = grouping.first
        """Spoken tokens that are still to come before the hop is full."""
        self._left_out = 0
        """Tokens of the hop that are not spoken."""
        self._tokens: list[int] = []
        self._timings: list[Timing] = []
        self._replayed = 0
        self._sent_any = False
        self._accepted_ns = time.time_ns()
        self._queue: Timing | None = None
        self._prefill: Timing | None = None

    @property
    def started(self) -> bool:
        """Whether the first pass of the model is over."""
        return self._prefill is not None

    @property
    def prefill_seconds(self) -> float:
        """Of the first pass; 0 before it is over."""
        return 0.0 if self._prefill is None else self._prefill.milliseconds / 1000

    def prefilled(self, start_ns: int, positions: int) -> None:
        """Record that the first pass of the model, begun at `start_ns`, has ended now."""
        self._queue = Timing("llm.queue", self._accepted_ns, start_ns)
        self._prefill = Timing("llm.prefill", start_ns, time.time_ns(), {"positions": positions})
        self._timings += [self._queue, self._prefill]

    def decided(self, script: Script, decide: Callable[[], int | None]) -> None:
        """Make one decision of the script by `decide`, its `decide` or `accept`, and add the token
        that it sends, or count the one that it replays.
        """
        tokens_before = script.token_count
        token = decide()
        if token is not None:
            self.add(token, last=script.finish is not None)
        elif script.token_count > tokens_before:
            self.replayed()

    def add(self, token: int, *, last: bool) -> None:
        """Add a token. A hop is sent as soon as it is full, unless the sentence ends with it. In a
        long silence it is sent every `rest` tokens, because the reader expects a sign of life; the
        spoken tokens that were still to come are then the next hop.
        """
        self._tokens.append(token)
        spoken = len(self._runs.spoken)
        self._runs.extend((token,))
        if len(self._runs.spoken) > spoken:
            self._due -= 1
        else:
            self._left_out += 1
        if last:
            return
        if not self._due:
            self._due = self._grouping.rest
            self._send(None)
        elif self._left_out == self._grouping.rest:
            self._send(None)

    def replayed(self) -> None:
        """Count a replayed token, which is not sent. An empty hop every `rest` tokens reports
        progress.
        """
        self._replayed += 1
        if self._replayed % self._grouping.rest == 0:
            self._deliver(Hop([]))

    def finish(self, reason: FinishReason, tokens: int) -> None:
        """Send the remaining tokens together with the outcome; `tokens` counts the whole
        sentence.
        """
        now = time.time_ns()
        queue = self._queue or Timing("llm.queue", self._accepted_ns, now)
        prefill = self._prefill or Timing("llm.prefill", now, now)
        decode = Timing("llm.decode", prefill.end_ns, now, {"tokens": tokens})
        self._send(Outcome(reason, tokens, queue, prefill, decode))

    def fail(self, error: Exception) -> None:
        """Send the error that ended the sequence. RuntimeError means that the reader's event loop
        is closed: no reader is left.
        """
        with contextlib.suppress(RuntimeError):
            self._deliver(error)

    def _send(self, outcome: Outcome | None) -> None:
        if not self._sent_any and self._prefill:
            self._timings.append(
                Timing("llm.first_hop", self._prefill.end_ns, time.time_ns(), {"tokens": len(self._tokens)})
            )
        if outcome:
            self._timings.append(outcome.decode)
        hop = Hop(self._tokens, tuple(self._timings), outcome)
        self._tokens, self._timings, self._sent_any, self._left_out = [], [], True, 0
        self._deliver(hop)


def non_finite(script: Script) -> NonFinite:
    """The error of a pass whose log-probabilities are not all finite."""
    return NonFinite(f"the speech-token model produced non-finite log-probabilities at token {script.token_count}")
