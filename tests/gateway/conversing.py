"""How a test speaks with a WebSocket of the gateway."""

import asyncio
import json
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed


async def send(ws: ClientConnection, *messages: dict[str, Any] | str | bytes) -> None:
    for message in messages:
        await ws.send(json.dumps(message) if isinstance(message, dict) else message)


async def until_closed(ws: ClientConnection) -> tuple[int | None, list[Any]]:
    """The code with which the server closes within ten seconds, and what it sends before."""
    received = list[Any]()
    async with asyncio.timeout(10):
        try:
            while True:
                received.append(await ws.recv())
        except ConnectionClosed:
            return ws.close_code, received


def spoken(audio: bytes) -> bytes:
    """Without the pauses between sentences, which are exact zeros."""
    samples = np.frombuffer(audio, "<i2")
    return samples[samples != 0].tobytes()
