"""Speech as the bytes of a file format, piece by piece."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from cosyserve.audio.compressed import Compressed, FileEncoder
from services.gateway.speech.speaking import Utterance


async def encoded(utterance: Utterance, encoder: FileEncoder) -> AsyncGenerator[bytes]:
    """What the encoder gives for each chunk, without empty pieces. A codec runs in a thread: it
    takes up to a millisecond for a chunk.
    """
    in_thread = isinstance(encoder, Compressed)
    async with contextlib.aclosing(utterance.chunks()) as chunks:
        async for chunk in chunks:
            piece = await asyncio.to_thread(encoder.encode, chunk.audio) if in_thread else encoder.encode(chunk.audio)
            if piece:
                yield piece
    rest = await asyncio.to_thread(encoder.finish) if in_thread else encoder.finish()
    if rest:
        yield rest
