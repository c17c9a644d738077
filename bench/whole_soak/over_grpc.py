"""Requests over gRPC: each kind, how often it comes, and how it has to end."""

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bench.load.stack import TEXTS
from bench.voices_soak import recording
from bench.whole_soak.tally import HEARD, HUNG_UP, REFUSED
from bench.whole_soak.up import Up
from cosyserve.client import AsyncClient
from cosyserve.errors import InvalidRequest, NotFound, Overloaded, Unauthenticated
from cosyserve.keys.secret import new_secret

FRAGMENT = 9
"""Characters."""
_SECONDS = 900.0
"""Deadline of calls that do not speak: the machine may be busy."""
_PATIENCE_SECONDS = 0.5
"""A caller hangs up within this time."""


def refusable(ask: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """`ask`, which may also end refused: every place was taken, or its key's limit was reached."""

    @functools.wraps(ask)
    async def asked(*given: Any) -> str:
        try:
            return await ask(*given)
        except Overloaded:
            return REFUSED

    return asked


class GrpcCallers:
    """All over one connection, which `close` closes, but for those that open one of their own."""

    def __init__(self, up: Up, rng: random.Random) -> None:
        self._up, self._rng = up, rng
        self._client = AsyncClient(up.grpc, up.key, tls=up.tls)
        self._voices = 0

    async def close(self) -> None:
        await self._client.close()

    def kinds(self) -> dict[str, tuple[float, Callable[[], Awaitable[str]]]]:
        """Weight and request, by name."""
        return {
            "gRPC Synthesize": (6, self._synthesize),
            "gRPC SynthesizeUnary": (2, self._unary),
            "gRPC StreamingSynthesize": (4, self._streaming),
            "gRPC Synthesize, hung up": (4, lambda: self._hung_up(self._synthesize)),
            "gRPC StreamingSynthesize, hung up": (2, lambda: self._hung_up(self._streaming)),
            "gRPC, a connection of its own": (2, self._own_connection),
            "gRPC, a speed of 9": (1, self._bad_value),
            "gRPC, an unknown key": (1, self._unknown_key),
            "gRPC, a key with a limit": (2, self._limited),
            "gRPC, a voice made, used and deleted": (1, self._voice),
            "gRPC ConvertVoice": (0.5, self._convert),
            "gRPC ListVoices": (1, self._list),
        }

    def _text(self) -> str:
        return self._rng.choice(TEXTS)

    def _seed(self) -> int:
        return self._rng.randrange(1 << 32)

    @refusable
    async def _synthesize(self, client: AsyncClient | None = None) -> str:
        async with (client or self._client).synthesize(self._text(), seed=self._seed()) as speech:
            await speech.read()
        return HEARD

    @refusable
    async def _unary(self) -> str:
        await self._client.synthesize_unary(self._text(), seed=self._seed())
        return HEARD

    @refusable
    async def _streaming(self) -> str:
        async with self._client.streaming_synthesize(self._fragments(), seed=self._seed()) as speech:
            async for _ in speech:
                pass
        return HEARD

    async def _fragments(self) -> AsyncIterator[str]:
        text = f"{self._text()} {self._text()}"
        for at in range(0, len(text), FRAGMENT):
            yield text[at : at + FRAGMENT]
            await asyncio.sleep(0.01)

    async def _hung_up(self, ask: Callable[[], Awaitable[str]]) -> str:
        """The caller of `ask` loses patience."""
        try:
            async with asyncio.timeout(self._rng.uniform(0.0, _PATIENCE_SECONDS)):
                return await ask()
        except TimeoutError:
            return HUNG_UP

    async def _own_connection(self) -> str:
        async with AsyncClient(self._up.grpc, self._up.key, tls=self._up.tls) as client:
            return await self._synthesize(client)

    async def _bad_value(self) -> str:
        with contextlib.suppress(InvalidRequest):
            await self._client.synthesize(self._text(), speed=9.0).read()
            raise ValueError("a speed of 9 was spoken")
        return REFUSED

    async def _unknown_key(self) -> str:
        with contextlib.suppress(Unauthenticated):
            await self._client.with_key(new_secret()).synthesize(self._text()).read()
            raise ValueError("an unknown key was served")
        return REFUSED

    async def _limited(self) -> str:
        return await self._synthesize(self._client.with_key(self._up.limited))

    @refusable
    async def _voice(self) -> str:
        self._voices += 1
        voice = f"soak-{self._seed():08x}-{self._voices}"
        await self._client.create_voice(recording(self._voices % 4), voice_id=voice, timeout=_SECONDS)
        try:
            with contextlib.suppress(Overloaded):
                await self._client.synthesize(self._text(), voice=voice, seed=self._seed()).read()
        finally:
            await self._client.delete_voice(voice, _SECONDS)
        with contextlib.suppress(NotFound):
            await self._client.voice(voice, _SECONDS)
            raise ValueError("a deleted voice is still there")
        return HEARD

    @refusable
    async def _convert(self) -> str:
        await self._client.convert_voice(recording(0), seed=self._seed()).read()
        return HEARD

    async def _list(self) -> str:
        await self._client.voices(_SECONDS)
        return HEARD
