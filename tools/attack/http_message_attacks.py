"""Attacks on the gateway by what a request holds: is each refused soon and with a status that says
so, and does an honest caller wait for it?
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Set

from tools.attack.raw_http import UPGRADE, all_of, calling, post, tiny
from tools.attack.target import Finding, Memory, Target, meanwhile

_CALLERS = 40
_FORM = "multipart/form-data; boundary=b"
_PART = b'--b\r\ncontent-disposition: form-data; name="a"'


async def head_bombs(target: Target) -> Finding:
    """Heads of many fields, of one endless field, of an endless path."""
    fields = b"".join(b"x%d: y\r\n" % number for number in range(2_000))
    bombs = {
        "fields": b"GET / HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\n",
        "field": b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 1_000_000,
        "path": b"GET /" + b"x" * 1_000_000,
        "upgrade": UPGRADE.replace(b"\r\n\r\n", b"\r\n") + fields + b"\r\n",
    }
    return await _bombed(target, bombs, {431}, most=60.0)


async def body_bombs(target: Target) -> Finding:
    """Bodies above the limit, compressed ones, and JSON that is deep or has a million values."""
    deep = b'{"input": ' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    wide = b'{"input": [' + b"{}," * 340_000 + b"0]}"
    gzip = post(bytes(1_000)).replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n", 1)
    bombs = {
        "too large": post(b"x" * 2_000_000),
        "far too large": post(b"x" * 1_000_000, announced=1 << 40),
        "deep": post(deep),
        "wide": post(wide),
        "number": post(b'{"seed": ' + b"9" * 1_000_000 + b"}"),
        "compressed": gzip,
    }
    return await _bombed(target, bombs, {400, 413, 415}, most=400.0)


async def form_bombs(target: Target) -> Finding:
    """Forms of 20 MB: of tiny parts, of one name, of headers, of line ends."""
    size = 20_000_000
    bombs = {
        "parts": (_PART + b"\r\n\r\n\r\n") * (size // (len(_PART) + 6)),
        "name": b'--b\r\ncontent-disposition: form-data; name="' + b"n" * size + b'"\r\n\r\n',
        "headers": _PART + b"\r\nx: y" * (size // 6) + b"\r\n\r\n",
        "value": _PART + b"\r\n\r\n" + b"v" * size,
        "line ends": _PART + b"\r\n\r\n" + b"\r\n-" * (size // 3),
        "nested": (_PART + b"\r\ncontent-type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\n--c--\r\n")
        * (size // 100),
    }
    posts = {name: post(bomb, "/v1/audio/voices", _FORM) for name, bomb in bombs.items()}
    return await _bombed(target, posts, {400}, most=500.0)


async def pipelined(target: Target) -> Finding:
    """40 connections that send 20,000 requests each without waiting for an answer."""
    gateway, most = target.at_gateway(), 60.0
    requests = b"GET /v1/models/none HTTP/1.1\r\nhost: x\r\n\r\n" * 1_000
    async with (
        calling(gateway.address, _CALLERS) as callers,
        Memory(gateway) as memory,
        meanwhile(caller.send(*[requests] * 20) for caller in callers),
    ):
        await asyncio.sleep(3.0)
        waited = await tiny(gateway.address)
    return memory.within(most, waited)


async def _bombed(target: Target, bombs: Mapping[str, bytes], allowed: Set[int], most: float) -> Finding:
    """40 callers send them in turn, all at once, while an honest one asks."""
    gateway, all_bombs = target.at_gateway(), list(bombs.values())
    async with (
        calling(gateway.address, _CALLERS) as callers,
        Memory(gateway) as memory,
        meanwhile(caller.send(all_bombs[number % len(all_bombs)]) for number, caller in enumerate(callers)),
    ):
        await asyncio.sleep(0.1)
        waited = await tiny(gateway.address)
        statuses = Counter(await all_of(callers, lambda caller: caller.status()))
    seen = f"{_CALLERS} requests, answers {dict(sorted(statuses.items()))}"
    also = "".join(f"{status}, " for status in sorted(allowed))
    return memory.within(most, waited, seen, held=set(statuses) <= allowed, also=also)
