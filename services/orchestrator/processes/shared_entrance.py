"""The entrance of one process of several: each call asks the parent, which counts for all."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

from cosyserve.errors import LimitReached, Overloaded, Unavailable
from services.orchestrator.access.budget import Budget
from services.orchestrator.access.caller import Call
from services.orchestrator.load_control.admission import PreemptiblePlace, Use
from services.orchestrator.load_control.entrance import Entrance, Entry, Occupancy
from services.orchestrator.load_control.wait_estimate import KINDS, ActiveRequest
from services.orchestrator.processes.link import Link, Message

_NAMES = {kind: name for name, kind in KINDS.items()}
_REFUSALS = {kind.__name__: kind for kind in (Overloaded, LimitReached)}


@dataclass
class _Reported:
    """What the parent reported last."""

    limit: int = 1
    active: int = 0


class _BudgetOfParent(Budget):
    """Text that arrives during a call is counted at the parent."""

    def __init__(self, link: Link, number: int) -> None:
        super().__init__()
        self._link, self._number = link, number

    def charge(self, characters: int) -> None:
        self._link.send("charge", number=self._number, characters=characters)


class SharedEntrance(Entrance):
    """link: to the parent; `take` has to be given the messages whose kind is in ANSWERS."""

    ANSWERS = ("entered", "refused", "left", "reclaimed", "counts")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count()
        self._reported = _Reported()
        self._answers: dict[int, asyncio.Future[None]] = {}
        """Of calls that wait for an answer."""
        self._places: dict[int, PreemptiblePlace] = {}
        self._over = False

    @property
    def occupancy(self) -> Occupancy:
        return self._reported

    @contextlib.asynccontextmanager
    async def enter(
        self, call: Call, entry: Entry, preemptible: PreemptiblePlace | None = None
    ) -> AsyncIterator[ActiveRequest]:
        number = next(self._numbers)
        self._link.send(
            "enter",
            number=number,
            caller=asdict(call.caller),
            place=entry.place,
            kind=_NAMES[entry.kind],
            size=entry.size,
            characters=entry.characters,
            preemptible=preemptible is not None,
        )
        try:
            await self._answer(number)
        except asyncio.CancelledError:
            self._link.send("leave", number=number, how="failed")
            raise
        request, how = ActiveRequest(entry.kind, entry.size, time.monotonic()), "failed"
        call.budget = _BudgetOfParent(self._link, number)
        if preemptible is not None:
            self._follow(number, preemptible)
        try:
            yield request
            how = "cut short" if request.cut_short else "completed"
        except Overloaded:
            how = "refused later"
            raise
        finally:
            self._places.pop(number, None)
            self._link.send("leave", number=number, how=how)
            # The caller may ask again, at another process, as soon as it has its status.
            with contextlib.suppress(Unavailable):
                await self._answer(number)

    def take(self, message: Message) -> None:
        """What the parent says."""
        kind, number = message["is"], message.get("number", -1)
        if "active" in message:
            self._reported = _Reported(message["limit"], message["active"])
        if kind == "reclaimed" and number in self._places:
            self._places.pop(number).reclaimed.set()
        waiting = self._answers.get(number)
        if waiting is None or waiting.done():
            return
        if kind in ("entered", "left"):
            waiting.set_result(None)
        elif kind == "refused":
            refusal = _REFUSALS[message["error"]]
            waiting.set_exception(
                refusal(message["text"], retry_after=message["retry_after"], limit=message["limit_name"])
            )

    def over(self) -> None:
        """The parent has ended: no call is let in any more."""
        self._over = True
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(_parent_lost())

    async def _answer(self, number: int) -> None:
        if self._over:
            raise _parent_lost()
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await waiting
        finally:
            del self._answers[number]

    def _follow(self, number: int, place: PreemptiblePlace) -> None:
        def used(use: Use) -> None:
            self._link.send("use", number=number, use=use.value)

        self._places[number], place.follow = place, used


def _parent_lost() -> Unavailable:
    return Unavailable("this server is being started again", retry_after=1.0)
