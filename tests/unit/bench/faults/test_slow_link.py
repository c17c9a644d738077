"""The proxy of the bench of faults: nothing is lost or changed, and every byte is later."""

import asyncio

from bench.faults.slow_link import slow_link
from cosyserve.host.supervision.layout import free_ports

BODY = bytes(range(256)) * 2_000


async def test_all_bytes_arrive_in_their_order_and_not_before_the_delay() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()

    (port,) = free_ports(1)
    clock = asyncio.get_running_loop()
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    async with server, slow_link("127.0.1.1", "127.0.0.1", port) as link:
        link.delay = 0.05
        begin = clock.time()
        reader, writer = await asyncio.open_connection("127.0.1.1", port)
        writer.write(BODY)
        writer.write_eof()
        assert await reader.read() == BODY
        assert clock.time() - begin >= 0.1
        writer.close()
        await link.until_unused()


async def test_a_peer_that_is_not_there_loses_the_connection() -> None:
    (port,) = free_ports(1)
    async with slow_link("127.0.1.1", "127.0.0.1", port) as link:
        reader, writer = await asyncio.open_connection("127.0.1.1", port)
        assert await reader.read() == b""
        writer.close()
        await link.until_unused()
