"""Whether a process that serves HTTP answers; the other services are asked over gRPC."""

import asyncio

_ASK_SECONDS = 2.0
_RETRY_SECONDS = 0.2
_ROUNDS = 3
"""Questions in a row without an answer."""
LATE_SECONDS = 1.0
"""How much later than it was to be woken a process is when it has not run: stopped, or on a machine
that stood still. What it saw meanwhile says nothing about others.
"""
_REQUEST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


async def answer(address: str, seconds: float) -> None:
    """Return when the process at `address` (host:port) has answered with any status. Raises OSError
    if it refuses or hangs up, TimeoutError after `seconds`.
    """
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            writer.write(_REQUEST)
            if not (await reader.readline()).startswith(b"HTTP/1.1 "):
                raise ConnectionError(f"{address} does not answer in HTTP")
        finally:
            writer.close()


async def until_answered(address: str) -> None:
    """Return at the first answer; never without one."""
    while True:
        try:
            return await answer(address, _ASK_SECONDS)
        except OSError:  # TimeoutError, too
            await asyncio.sleep(_RETRY_SECONDS)  # the process is starting, or has died, which its exit shows


async def until_silent(address: str, silent_seconds: float, refusing_seconds: float) -> str:
    """As `cosyserve.host.supervision.child.until_silent`: what was observed when the process has
    given no answer for `silent_seconds`, or refused connections for `refusing_seconds`.
    """
    loop = asyncio.get_running_loop()
    answered, silent = loop.time(), 0
    while True:
        due = loop.time() + silent_seconds / _ROUNDS
        try:
            await answer(address, silent_seconds / _ROUNDS)
            answered, silent = loop.time(), 0
        except TimeoutError:
            if loop.time() - due > LATE_SECONDS:
                answered, silent = loop.time(), 0
                continue
            silent += 1
            if silent == _ROUNDS:
                return f"gave no health answer for {silent_seconds:g} s"
            continue
        except OSError:
            if loop.time() - answered > refusing_seconds:
                return f"has refused connections for {refusing_seconds:g} s"
        due = loop.time() + _ASK_SECONDS
        await asyncio.sleep(_ASK_SECONDS)
        if loop.time() - due > LATE_SECONDS:
            answered = loop.time()
