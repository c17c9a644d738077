"""What the parent counts for one of its processes: the places that its calls hold."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cosyserve.errors import LimitReached, Overloaded
from cosyserve.keys.key_record import KeyLimits
from cosyserve.tasks import cancel_all
from services.orchestrator.access.caller import Call, Caller
from services.orchestrator.load_control.admission import PreemptiblePlace, Use
from services.orchestrator.load_control.entrance import Entrance, Entry
from services.orchestrator.load_control.wait_estimate import KINDS
from services.orchestrator.processes.link import Link, Message

log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
CallOf = Callable[[Caller], Awaitable[Call]]
"""The call of a caller, with its budget."""


class _CutOff(Exception):
    """The call did not complete, so its duration says nothing."""


@dataclass(eq=False)
class _Held:
    """One call. how: set when it leaves."""

    call: Call
    place: PreemptiblePlace | None
    how: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class CountedCalls:
    """link: to the process. entrance: that counts for all of them. idle_seconds: as in
    `PreemptiblePlace`.
    """

    REQUESTS = ("enter", "leave", "charge", "use")

    def __init__(self, link: Link, entrance: Entrance, call_of: CallOf, idle_seconds: float) -> None:
        self._link, self._entrance, self._call_of, self._idle_seconds = link, entrance, call_of, idle_seconds
        self._held: dict[int, _Held] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, message: Message) -> None:
        """What the process says."""
        kind, number = message["is"], message["number"]
        if kind == "enter":
            task = self._tasks[number] = asyncio.create_task(self._hold(number, message))
            task.add_done_callback(lambda _: self._tasks.pop(number, None))
            return
        held = self._held.get(number)
        if kind == "leave":
            if held is not None and not held.how.done():
                held.how.set_result(message["how"])
            elif number in self._tasks:  # it still waits for a place
                self._tasks[number].cancel()
        elif held is not None and kind == "charge":
            held.call.budget.charge(message["characters"])
        elif held is not None and held.place is not None:
            held.place.take(Use(message["use"]))

    async def close(self) -> None:
        """The process has ended: its places are free."""
        await cancel_all(list(self._tasks.values()))

    async def _hold(self, number: int, message: Message) -> None:
        try:
            caller = message["caller"]
            call = await self._call_of(Caller(**{**caller, "limits": KeyLimits(**caller["limits"])}))
            entry = Entry(message["place"], KINDS[message["kind"]], message["size"], message["characters"])
            held = _Held(call, PreemptiblePlace(self._idle_seconds) if message["preemptible"] else None)
            async with contextlib.AsyncExitStack() as inside:
                request = await inside.enter_async_context(self._entrance.enter(call, entry, held.place))
                self._held[number] = held
                if held.place is not None:
                    reclaiming = asyncio.create_task(self._tell_when_reclaimed(number, held.place))
                    inside.callback(reclaiming.cancel)
                self._say("entered", number)
                how = await held.how
                request.cut_short = how == "cut short"
                if how == "refused later":
                    raise Overloaded("")
                if how == "failed":
                    raise _CutOff
        except Overloaded as error:
            if number not in self._held:
                self._refuse(number, error)
        except _CutOff:
            pass
        except Exception:
            log.exception("a call could not be counted")
            self._refuse(number, Overloaded("the server cannot count this request", retry_after=_RETRY_SECONDS))
        finally:
            if self._held.pop(number, None) is not None:
                self._say("left", number)

    def _say(self, kind: str, number: int) -> None:
        places = self._entrance.occupancy
        self._link.send(kind, number=number, limit=places.limit, active=places.active)

    def _refuse(self, number: int, error: Overloaded) -> None:
        name = (LimitReached if isinstance(error, LimitReached) else Overloaded).__name__
        said = {"error": name, "text": error.message, "retry_after": error.retry_after, "limit_name": error.limit}
        self._link.send("refused", number=number, **said)

    async def _tell_when_reclaimed(self, number: int, place: PreemptiblePlace) -> None:
        await place.reclaimed.wait()
        self._link.send("reclaimed", number=number)
