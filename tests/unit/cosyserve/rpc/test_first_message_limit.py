"""First messages are received in turn: no more at once than the limit, and none that lingers keeps
others out.
"""

import asyncio
import contextlib

import pytest

from cosyserve.errors import DeadlineExceeded, Overloaded, PermissionDenied, Unavailable
from cosyserve.rpc import first_message_limit as limit
from cosyserve.rpc.first_message_limit import FirstMessageLimit, Turn
from cosyserve.rpc.peers import require_peer

HERE, ELSEWHERE = "ipv4:10.0.0.1:1000", "ipv4:10.0.0.2:1000"


def brief(limit: int, seconds: float = 5.0) -> FirstMessageLimit:
    return FirstMessageLimit(limit, seconds, 0.2)


async def linger(gate: FirstMessageLimit, peer: str = HERE) -> Turn:
    """A call that begins to send, and never ends by itself."""
    taken: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with gate.turn(peer) as turn:
            if not taken.done():
                taken.set_result(turn)
            await turn.lost

    holding.append(asyncio.create_task(hold()))
    return await taken


holding: list["asyncio.Task[None]"] = []


async def through(gate: FirstMessageLimit, peer: str = HERE) -> str:
    """A call that is read at once when it has its turn."""
    async with gate.turn(peer):
        return peer


async def test_never_more_at_once_than_the_limit() -> None:
    gate, most = brief(3), 0

    async def call() -> None:
        nonlocal most
        async with gate.turn(HERE):
            most = max(most, len(gate.turns))
            await asyncio.sleep(0.001)

    await asyncio.gather(*(call() for _ in range(50)))
    assert (most, len(gate.turns)) == (3, 0)


async def test_a_call_that_lingers_loses_its_turn_when_another_one_waits() -> None:
    gate = brief(2)
    first, second = await linger(gate), await linger(gate)
    await asyncio.sleep(0.3)
    assert not first.lost.done()  # as long as no other call waits
    async with asyncio.timeout(0.1), gate.turn(HERE):
        assert first.lost.done()
        assert not second.lost.done()
        assert len(gate.turns) == 2


async def test_a_call_that_has_just_begun_is_left_alone() -> None:
    gate = brief(1)
    turn = await linger(gate)
    waiting = asyncio.create_task(linger(gate))
    await asyncio.sleep(0.05)
    assert not turn.lost.done()
    async with asyncio.timeout(1):
        await waiting
    assert turn.lost.done()


async def order_of(gate: FirstMessageLimit, peers: list[str]) -> list[int]:
    """The numbers of calls of `peers`, which all wait at once, in the order in which they are
    read.
    """
    order: list[int] = []

    async def call(number: int, peer: str) -> None:
        async with gate.turn(peer):
            order.append(number)

    await linger(gate)
    await asyncio.gather(*(asyncio.create_task(call(number, peer)) for number, peer in enumerate(peers)))
    return order


HERE_AGAIN = "ipv4:10.0.0.1:2000"
ONE, SAME, OTHER = (f"ipv6:%5B2001:db8:0:{host}%5D:1000" for host in ("1::1", "1::2", "2::1"))


@pytest.mark.parametrize(
    ("peers", "order"),
    [
        pytest.param([HERE] * 4, [0, 1, 2, 3], id="calls of a connection in order"),
        pytest.param([HERE, HERE, HERE, HERE_AGAIN, ELSEWHERE], [0, 4, 3, 1, 2], id="hosts and connections take turns"),
        pytest.param([ONE, ONE, SAME, OTHER], [0, 3, 2, 1], id="a host of IPv6 is its network of 64 bits"),
    ],
)
async def test_calls_are_read_in_turn(peers: list[str], order: list[int]) -> None:
    assert await order_of(brief(1), peers) == order


async def test_the_host_with_the_most_turns_loses_one() -> None:
    gate = brief(3)
    few = await linger(gate, ELSEWHERE)
    many = [await linger(gate), await linger(gate)]
    await asyncio.sleep(0.3)
    async with asyncio.timeout(0.1), gate.turn("ipv4:10.0.0.3:1000"):
        assert [turn.lost.done() for turn in (few, *many)] == [False, True, False]


async def test_many_calls_that_never_send_keep_none_waiting_long() -> None:
    """Fifty a second on one connection; turns of a second would be enough for eight."""
    gate = FirstMessageLimit(8, 30.0)
    loop = asyncio.get_running_loop()
    attack = asyncio.create_task(empty_calls(gate, 50))
    try:
        await asyncio.sleep(1.5)
        for peer in (HERE, HERE_AGAIN, ELSEWHERE):
            begin = loop.time()
            async with gate.turn(peer):
                assert loop.time() - begin < 1.2
    finally:
        attack.cancel()


async def empty_calls(gate: FirstMessageLimit, a_second: int) -> None:
    async with asyncio.TaskGroup() as calls:
        while True:
            calls.create_task(linger(gate))
            await asyncio.sleep(1 / a_second)


async def test_a_closed_intake_takes_every_turn_back_and_refuses() -> None:
    gate = FirstMessageLimit(1, 5.0)
    turn = await linger(gate)
    waiting = asyncio.create_task(through(gate))
    await asyncio.sleep(0.01)
    gate.close(lambda: Unavailable("leaving"))
    assert turn.lost.done()
    assert isinstance(turn.reason, Unavailable)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, 1)
    with pytest.raises(Unavailable):
        await through(gate)
    assert len(gate.turns) == 0


async def test_waiting_has_an_end() -> None:
    gate = FirstMessageLimit(1, 0.1)
    async with gate.turn(HERE):
        with pytest.raises(DeadlineExceeded, match=r"not read in 0\.1 s"):
            await through(gate)
    async with gate.turn(HERE):
        assert len(gate.turns) == 1


async def test_the_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "_MOST_WAITING", 2)
    gate = FirstMessageLimit(1, 5.0)
    async with gate.turn(HERE):
        waiting = [asyncio.create_task(through(gate)) for _ in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded, match="2 calls wait"):
            await through(gate)
        # A call of another host takes the place of the last one of the host that has the most.
        elsewhere = asyncio.create_task(through(gate, ELSEWHERE))
        with pytest.raises(Overloaded, match="2 calls wait"):
            await waiting[1]
    assert [*await asyncio.gather(waiting[0], elsewhere)] == [HERE, ELSEWHERE]


async def test_a_caller_that_hangs_up_while_waiting_leaves_nothing() -> None:
    gate = brief(1)
    async with gate.turn(HERE):
        waiting = asyncio.create_task(linger(gate))
        await asyncio.sleep(0.01)
        waiting.cancel()
        holding[-1].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        await asyncio.gather(holding[-1], return_exceptions=True)
    async with asyncio.timeout(0.1), gate.turn(HERE):
        assert len(gate.turns) == 1


LOOPBACK = ("ipv4:127.0.0.1:50123", "ipv6:%5B::1%5D:50123", "ipv6:[::ffff:127.0.0.1]:5", "unix:", "unix:/run/x.sock")
NEAR = ("ipv4:10.1.2.3:50123", "ipv6:[::ffff:10.1.2.3]:5", "ipv6:%5Bfc00::7%5D:1")
FAR = ("ipv4:8.8.8.8:443", "ipv6:[2001:db8::1]:443", "vsock:3:4", "ipv4:nonsense", "")
NETWORKS = ("10.0.0.0/8", "fc00::/7")


@pytest.mark.parametrize(
    ("peer", "networks", "may"),
    [
        *((peer, (), True) for peer in LOOPBACK),
        *((peer, networks, bool(networks)) for peer in NEAR for networks in (NETWORKS, ())),
        *((peer, NETWORKS, False) for peer in FAR),
    ],
)
def test_this_host_and_peers_may_where_their_network_is_named(peer: str, networks: tuple[str, ...], may: bool) -> None:
    refused = pytest.raises(PermissionDenied, match="WarmUp may be called from the host of the service")
    with contextlib.nullcontext() if may else refused:
        require_peer(peer, networks, "WarmUp")
