"""Checks whether a server can be reached before the first request."""

import asyncio

import grpc

from cosyserve.errors import Unavailable

CONNECT_SECONDS = 4.0
"""Longest wait for a connection in seconds: an address without a server refuses at once or never
answers.
"""


async def connect(channel: grpc.aio.Channel, target: str, seconds: float | None = None) -> None:
    """Return when `channel` is connected. seconds: longest wait, at most CONNECT_SECONDS, which is
    the default.

    Raises Unavailable as soon as the address is known to refuse connections, or after the longest
    wait.
    """
    limit = CONNECT_SECONDS if seconds is None else min(seconds, CONNECT_SECONDS)
    try:
        async with asyncio.timeout(limit):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                # The channel repeats an attempt that only took too long.
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and await _refuses(target):
                    raise Unavailable(f"server at {target}: nothing can be reached there; is it running? cosyserve up")
                await channel.wait_for_state_change(state)
    except TimeoutError as error:
        raise Unavailable(f"server at {target}: no answer within {limit:g} s; is it running? cosyserve up") from error


async def _refuses(target: str) -> bool:
    """Whether host:port refuses connections; False for a target of another form."""
    host, _, port = target.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return False
    try:
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:
        return True
    writer.close()
    return False
