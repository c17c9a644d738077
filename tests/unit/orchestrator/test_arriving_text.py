"""The text of a stream: read in order, read again, forgotten, bounded; and what a caller's silence
does to it. A read of a caller's message is never cancelled: it ends with the call, and its error is
not reported to a caller that has left.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.errors import CosyserveError, DeadlineExceeded, InvalidRequest
from services.orchestrator.speech.arriving_text import Flush, TextReplayBuffer, Waiting, listen

PATIENT = Waiting(delay_seconds=None, idle_seconds=5.0)


async def told(text: TextReplayBuffer) -> list[str | Flush]:
    """All that a new reader gets, up to the end, pieces between two flushes joined."""
    found = list[str | Flush]()
    async for piece in text.read():
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return found


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.one_of(st.text("ab ", max_size=4), st.just(Flush()), st.just(Flush(4))), max_size=20), st.floats(0, 1)
)
def test_what_is_forgotten_is_read_no_more_and_the_rest_is(parts: list[str | Flush], share: float) -> None:
    async def check() -> None:
        text, places, flushes = TextReplayBuffer(10**6), "", list[tuple[int, Flush]]()
        for part in parts:
            if isinstance(part, Flush):
                text.flush(part)
                flushes.append((len(places), part))
            else:
                text.feed(part)
                places += part
        text.end()
        until = int(share * len(places))
        text.forget(until)
        found = await told(text)
        assert "".join(piece for piece in found if isinstance(piece, str)) == places[until:]
        place = until
        for piece in found:
            if isinstance(piece, Flush):
                assert (place, piece) in flushes
            else:
                place += len(piece)
        assert len({place for place, _ in flushes if place > until}) <= sum(isinstance(piece, Flush) for piece in found)

    asyncio.run(check())


async def test_flushes_of_nothing_do_not_pile_up() -> None:
    text = TextReplayBuffer(100)
    text.feed("ab")
    for _ in range(1_000):
        text.flush(Flush())
        text.flush(Flush(4))
    text.end()
    assert await told(text) == ["ab", Flush()]


async def messages(*found: str | float) -> AsyncIterator[str | Flush]:
    """These fragments; a number is a pause, in seconds."""
    for one in found:
        if isinstance(one, str):
            yield one
        else:
            await asyncio.sleep(one)


async def test_nothing_is_read_while_too_much_waits() -> None:
    text, seen = TextReplayBuffer(most_waiting=10), list[int]()

    async def fragments() -> AsyncIterator[str | Flush]:
        for number in range(5):
            seen.append(number)
            yield "123456"

    listening = asyncio.create_task(listen(fragments(), text, PATIENT, 1_000))
    await asyncio.sleep(0.05)
    assert seen == [0, 1]
    text.forget(6)
    await asyncio.sleep(0.05)
    assert seen == [0, 1, 2]
    text.forget(18)
    await asyncio.sleep(0.05)
    text.forget(30)
    await asyncio.wait_for(listening, 5)
    assert (seen, text.received, text.ended) == ([0, 1, 2, 3, 4], 30, True)


async def test_a_document_is_kept_whole_and_still_read() -> None:
    text = TextReplayBuffer(most_waiting=10)
    listening = asyncio.create_task(listen(messages(*["123456"] * 5), text, PATIENT, 1_000))
    await asyncio.sleep(0.05)
    assert text.received == 12
    text.keep_whole()
    await asyncio.wait_for(listening, 5)
    assert (text.received, text.begin, "".join([piece for piece in await told(text) if isinstance(piece, str)])) == (
        30,
        0,
        "123456" * 5,
    )


HEARD: dict[str, tuple[tuple[str | float, ...], Waiting, CosyserveError | None, list[str | Flush]]] = {
    "a pause of the caller flushes words once and then ends the stream": (
        ("ab cd", 9.0),
        Waiting(delay_seconds=0.1, idle_seconds=0.3),
        DeadlineExceeded(r"no message came for 0\.3 s after 5 characters"),
        ["ab cd", Flush(4)],
    ),
    "a message that comes after the delay is not lost": (
        ("ab", 0.15, "cd"),
        Waiting(delay_seconds=0.05, idle_seconds=5.0),
        None,
        ["ab", Flush(4), "cd"],
    ),
    "too much text ends it": (
        ("abc", "defg"),
        PATIENT,
        InvalidRequest("text has 7 characters in all, allowed are 1 to 6"),
        ["abc"],
    ),
}


@pytest.mark.parametrize(("parts", "waiting", "error", "heard"), HEARD.values(), ids=HEARD)
async def test_what_is_read_of_a_caller(
    parts: tuple[str | float, ...], waiting: Waiting, error: CosyserveError | None, heard: list[str | Flush]
) -> None:
    text = TextReplayBuffer(100)
    with contextlib.nullcontext() if error is None else pytest.raises(type(error), match=error.message):
        await listen(messages(*parts), text, waiting, 6)
    text.end()
    assert await told(text) == heard


class Caller:
    """Writes one fragment, then is read until `ended` is set, as a call is; the read fails then."""

    def __init__(self) -> None:
        self.ended, self.over = asyncio.Event(), asyncio.Event()

    async def parts(self) -> AsyncIterator[str | Flush]:
        yield "text"
        try:
            await self.ended.wait()
        finally:
            self.over.set()
        raise InvalidRequest("the last message was none")


@pytest.mark.parametrize("idle", [True, False])
async def test_the_read_goes_on_when_it_is_waited_for_no_longer(idle: bool) -> None:
    """Because the caller was silent for too long, or because the request ended in another way."""
    forgotten: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context["message"]))
    caller = Caller()
    waiting = Waiting(delay_seconds=None, idle_seconds=0.05 if idle else 60.0)
    listening = asyncio.create_task(listen(caller.parts(), TextReplayBuffer(100), waiting, 100))
    await asyncio.sleep(0.02)
    if not idle:
        listening.cancel()
    with pytest.raises(DeadlineExceeded if idle else asyncio.CancelledError):
        await listening
    await asyncio.sleep(0.05)
    assert not caller.over.is_set()  # nor cancelled, which would end it
    caller.ended.set()
    await asyncio.wait_for(caller.over.wait(), 1)
    await asyncio.sleep(0.05)
    gc.collect()
    assert forgotten == []
