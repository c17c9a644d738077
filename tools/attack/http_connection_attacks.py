"""Attacks on the gateway by connections that are held, half used or not read: each measures what
the gateway holds meanwhile, and how long an honest caller waits.
"""

import asyncio
import contextlib
from collections import Counter

from tools.attack.raw_http import SPEECH, UPGRADE, all_of, calling, post, speech, tiny
from tools.attack.target import Finding, Memory, Target, meanwhile

_MANY = 2_000
_CUT_SECONDS = 25.0
"""By when the gateway has cut connections without a request: its setting is 15 s."""


async def idle_connections(target: Target) -> Finding:
    """2,000 connections that never say anything: what do they hold, and are they cut in time?"""
    return await _without_request(target, b"", most=60.0)


async def slow_heads(target: Target) -> Finding:
    """2,000 connections on which the head of a request never ends."""
    return await _without_request(
        target, b"POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 8_000, most=150.0
    )


async def _without_request(target: Target, said: bytes, most: float) -> Finding:
    gateway = target.at_gateway()
    async with calling(gateway.address, _MANY) as callers, Memory(gateway) as memory:
        await all_of(callers, lambda caller: caller.send(said))
        waited = await tiny(gateway.address)
        cut = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CUT_SECONDS):
                for caller in callers:
                    await caller.until_closed()
                    cut += 1
    return memory.within(most, waited, f"{_MANY} connections, {cut} cut after {_CUT_SECONDS:.0f} s", held=cut == _MANY)


async def many_websockets(target: Target) -> Finding:
    """2,000 WebSockets that are held open: how many are taken, and are the others answered?"""
    gateway, most_taken, most = target.at_gateway(), 1_024, 300.0
    async with calling(gateway.address, _MANY) as callers, Memory(gateway) as memory:
        await all_of(callers, lambda caller: caller.send(UPGRADE))
        statuses = Counter(await all_of(callers, lambda caller: caller.status()))
        waited = await tiny(gateway.address)
    held = set(statuses) <= {101, 503} and statuses[101] <= most_taken
    return memory.within(most, waited, f"{_MANY} WebSockets, answers {dict(sorted(statuses.items()))}", held=held)


async def websocket_floods(target: Target) -> Finding:
    """40 WebSockets whose peers send pings, empty fragments or messages as fast as they can and
    read nothing.
    """
    gateway, seconds, most = target.at_gateway(), 3.0, 100.0
    ping, fragment = b"\x89\xfd\0\0\0\0" + bytes(125), b"\x00\x80\0\0\0\0"
    message = b"\x81\x92\0\0\0\0" + b'{"type": "cancel"}'
    floods = (ping * 500, b"\x01\x80\0\0\0\0" + fragment * 1_000, message * 1_000)
    async with calling(gateway.address, 40, small_window=True) as callers, Memory(gateway) as memory:
        await all_of(callers, lambda caller: caller.send(UPGRADE))
        async with meanwhile(
            caller.send(*[floods[number % len(floods)]] * 2_000) for number, caller in enumerate(callers)
        ):
            await asyncio.sleep(seconds)
            waited = await tiny(gateway.address)
    return memory.within(most, waited, "40 floods")


async def slow_bodies(target: Target) -> Finding:
    """40 uploads of 21 MB of which the last kilobyte never comes, and 500 bodies of 60 kB."""
    gateway, most = target.at_gateway(), 450.0
    upload = post(bytes(20_999_000), "/v1/audio/voices", "multipart/form-data; boundary=b", announced=21_000_000)
    small = post(b"{" + b" " * 59_000, announced=60_000)
    async with (
        calling(gateway.address, 540) as callers,
        Memory(gateway) as memory,
        meanwhile(caller.send(upload if number < 40 else small) for number, caller in enumerate(callers)),
    ):
        await asyncio.sleep(3.0)
        waited = await tiny(gateway.address)
    return memory.within(most, waited, "540 bodies that do not end")


async def http_never_reading(target: Target) -> Finding:
    """40 callers of long texts, over HTTP and WebSockets in turn, that never read the answer."""
    gateway, most = target.at_gateway(), 100.0
    text = "This sentence is heard by no caller at all. " * 200
    async with calling(gateway.address, 40, small_window=True) as callers, Memory(gateway) as memory:
        for number, caller in enumerate(callers):
            await caller.send(speech(text) if number % 2 else UPGRADE + _setup_and_text(text))
        await asyncio.sleep(4.0)
    await target.until_idle()
    return memory.within(most, await tiny(gateway.address), "40 callers that never read")


async def http_hang_ups(target: Target) -> Finding:
    """500 requests whose callers hang up at once or soon: is every place freed?"""
    gateway, rounds, calls, most = target.at_gateway(), 10, 50, 100.0
    text = "No caller waits for this sentence. " * 50
    async with Memory(gateway) as memory:
        for number in range(rounds):
            async with calling(gateway.address, calls) as callers:
                await all_of(callers, lambda caller: caller.send(speech(text)))
                await asyncio.sleep(0.02 * number)
    await target.until_idle()
    return memory.within(most, await tiny(gateway.address), f"{rounds * calls} hang-ups, all places free")


async def half_closed(target: Target) -> Finding:
    """500 connections whose peers close their side behind a request that is not complete."""
    gateway, most = target.at_gateway(), 60.0
    async with calling(gateway.address, 500) as callers, Memory(gateway) as memory:
        await all_of(callers, lambda caller: caller.send(post(b"{", SPEECH, announced=1_000)))
        for caller in callers:
            caller.writer.write_eof()
        closed = len(await all_of(callers, lambda caller: caller.until_closed()))
        waited = await tiny(gateway.address)
    return memory.within(most, waited, f"{closed} half-closed connections ended")


def _setup_and_text(text: str) -> bytes:
    messages = ('{"type": "setup", "seed": 1}', f'{{"type": "text", "text": "{text}"}}', '{"type": "end"}')
    return b"".join(
        b"\x81"
        + (bytes((0x80 | len(one),)) if len(one) < 126 else b"\xfe" + len(one).to_bytes(2, "big"))
        + bytes(4)
        + one
        for one in (message.encode() for message in messages)
    )
