"""Options of every gRPC channel and server of this project, in one place.

grpcio 1.85 takes the time limit of a keepalive ping from `grpc.http2.ping_timeout_ms`, which
defaults to a minute; `grpc.keepalive_timeout_ms` is set as well, for releases that read that one.
"""

import asyncio
from typing import Final

import grpc

from cosyserve.errors import Unavailable

Options = list[tuple[str, int]]
PING_SECONDS: Final = 3.5
"""Seconds without data after which a caller sends a keepalive ping."""
ANSWER_SECONDS: Final = 3.0
"""Seconds without an answer to the ping after which the connection is closed and its calls fail
with UNAVAILABLE.
"""
OWN_CONNECTION: Final = ("grpc.use_local_subchannel_pool", 1)
"""Option of a channel that shares no connection with another channel of this process."""
_SERVER_PING_SECONDS: Final = 30.0
_SERVER_ANSWER_SECONDS: Final = 10.0
_WINDOW_BYTES: Final = 64 * 1024


def channel_options(
    max_message_bytes: int | None = None, *, own_connection: bool = False, longest_back_off: float = 1.0
) -> Options:
    """Options of a channel to one of our services: during a call, a frozen process is noticed
    `PING_SECONDS + ANSWER_SECONDS` after its last data.

    max_message_bytes: in each direction; None: the default of grpcio. own_connection: share no
    connection with another channel of this process. longest_back_off: seconds between two attempts
    to connect.
    """
    options = [
        ("grpc.initial_reconnect_backoff_ms", 100),
        # In grpcio this is the time limit of an attempt to connect: with a shorter one, a distant
        # or busy server would never be reached.
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", round(longest_back_off * 1000)),
        *_keepalive(PING_SECONDS, ANSWER_SECONDS),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if own_connection:
        options.append(OWN_CONNECTION)
    if max_message_bytes is not None:
        options += _message_bytes(max_message_bytes)
    return options


def server_options(
    max_message_bytes: int, max_connections: int, max_streams_per_connection: int, *, shares_port: bool = False
) -> Options:
    """Options of a server. The unread bytes of a call are at most a window of 64 KiB until its
    handler reads them (cosyserve.rpc.first_message_limit). shares_port: other processes listen on
    the same port, over which the kernel spreads the connections.
    """
    return [
        *_message_bytes(max_message_bytes),
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.max_concurrent_streams", max_streams_per_connection),
        # Otherwise the window of every call grows with the bandwidth of its connection.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        # Callers ping to notice a peer that hangs; by default, many pings or pings without data are
        # answered with GOAWAY.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),
        # A stream of a caller that vanished holds its memory until this notices.
        *_keepalive(_SERVER_PING_SECONDS, _SERVER_ANSWER_SECONDS),
    ]


def _keepalive(ping_seconds: float, answer_seconds: float) -> Options:
    return [
        ("grpc.keepalive_time_ms", round(ping_seconds * 1000)),
        ("grpc.http2.ping_timeout_ms", round(answer_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", round(answer_seconds * 1000)),
    ]


def _message_bytes(most: int) -> Options:
    return [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most)]


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
        why = await _last_failure(channel)
        raise Unavailable(
            f"server at {target}: no answer within {limit:g} s; is it running? cosyserve up{why}"
        ) from error


async def _last_failure(channel: grpc.aio.Channel) -> str:
    """Why a channel has no connection, such as a certificate that is not trusted; empty if unknown.
    grpcio reports it to calls alone.
    """
    if channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        return ""
    try:
        await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=1.0)  # type: ignore[arg-type]
    except grpc.aio.AioRpcError as error:
        return f" ({error.details()})" if error.code() is grpc.StatusCode.UNAVAILABLE else ""
    return ""


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
