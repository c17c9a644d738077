"""Whether a server is there, found out before anything is asked of it."""

import asyncio

import grpc

from cosyserve.errors import Unavailable

CONNECT_SECONDS = 4.0
"""Longest wait for a connection: addresses that nobody answers at refuse at once or not at all."""


async def connect(channel: grpc.aio.Channel, target: str, seconds: float | None = None) -> None:
    """Return when calls on `channel` would be sent. seconds: longest wait, at most CONNECT_SECONDS,
    which is the default.

    Raises Unavailable as soon as the address is known to take no connection, or when there was no
    answer in time.
    """
    limit = CONNECT_SECONDS if seconds is None else min(seconds, CONNECT_SECONDS)
    try:
        async with asyncio.timeout(limit):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                # An attempt that merely took longer than the channel's patience is made again by
                # itself.
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and await _refuses(target):
                    raise Unavailable(f"server at {target}: nothing can be reached there; is it running? cosyserve up")
                await channel.wait_for_state_change(state)
    except TimeoutError as error:
        raise Unavailable(f"server at {target}: no answer within {limit:g} s; is it running? cosyserve up") from error


async def _refuses(target: str) -> bool:
    """Whether host:port takes no connection; False for a target of another form."""
    host, _, port = target.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return False
    try:
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:
        return True
    writer.close()
    return False
