"""What the stages say of themselves, and their warm-up, through the orchestrator.

A target that is a name with several addresses, as of a headless service, stands for as many processes; calls are spread over them, and
here each is asked by itself.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar, cast

import grpc

from cosyserve.channel import Replica, ReplicaSet, as_error
from cosyserve.errors import Unavailable
from cosyserve.v1 import info_pb2, info_pb2_grpc

PATIENCE_SECONDS = 2.0
WARM_UP_SECONDS = 120.0
T = TypeVar("T")


class StageInfo:
    """Of these stages, all their replicas."""

    def __init__(self, stages: Sequence[ReplicaSet]) -> None:
        self._stages = stages

    async def ask(self) -> tuple[list[info_pb2.ServiceInfo], list[str]]:
        """What each replica says of itself, and who did not answer: `stage: STATUS`."""
        answers = await self._of_all(lambda stub: stub.GetInfo(info_pb2.GetInfoRequest(), timeout=PATIENCE_SECONDS))
        told = [answer.info for _, answer in answers if isinstance(answer, info_pb2.GetInfoResponse)]
        return told, [f"{stage.stage}: {answer.code().name}" for stage, answer in answers if isinstance(answer, grpc.aio.AioRpcError)]

    async def warm_up(self) -> None:
        """Warm up every replica that serves. Raises what the first one that fails says, Unavailable when a stage has none."""
        for stage in self._stages:
            if not stage.serving:
                raise Unavailable(f"{stage} has no replica that serves", retry_after=1.0)
        answers = await self._of_all(lambda stub: stub.WarmUp(info_pb2.WarmUpRequest(), timeout=WARM_UP_SECONDS), serving=True)
        warm = {stage for stage, answer in answers if not isinstance(answer, grpc.aio.AioRpcError)}
        for stage, answer in answers:
            # One of several behind a name that is still loading warms up by itself.
            if isinstance(answer, grpc.aio.AioRpcError) and not (stage in warm and answer.code() is grpc.StatusCode.UNAVAILABLE):
                raise as_error(answer, stage.stage, str(stage))

    async def _of_all(
        self, call: "Callable[[info_pb2_grpc.InfoServiceAsyncStub], Awaitable[T]]", *, serving: bool = False
    ) -> list[tuple[ReplicaSet, T | grpc.aio.AioRpcError]]:
        async def one(channel: grpc.aio.Channel) -> T | grpc.aio.AioRpcError:
            try:
                return await call(cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel)))
            except grpc.aio.AioRpcError as error:
                return error

        async def each(stage: ReplicaSet, replica: Replica) -> list[tuple[ReplicaSet, T | grpc.aio.AioRpcError]]:
            async with doors(replica) as channels:
                return [(stage, answer) for answer in await asyncio.gather(*map(one, channels))]

        pairs = [(stage, replica) for stage in self._stages for replica in (stage.serving_replicas() if serving else stage.replicas())]
        return [answer for answers in await asyncio.gather(*(each(*pair) for pair in pairs)) for answer in answers]


@contextlib.asynccontextmanager
async def doors(replica: Replica) -> AsyncIterator[list[grpc.aio.Channel]]:
    """A channel to each address behind the target; the replica's own where there is one."""
    found = await addresses(replica.target)
    if len(found) < 2:
        yield [replica.channel]
        return
    async with contextlib.AsyncExitStack() as held:
        yield [await held.enter_async_context(grpc.aio.insecure_channel(address)) for address in found]


async def addresses(target: str) -> list[str]:
    """host:port of each address behind host:port or dns:///host:port, of the kind that comes first: a process that has one of IPv4 and one
    of IPv6 is one process. None where nobody knows."""
    host, _, port = target.removeprefix("dns:///").rpartition(":")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            told = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError):
        return []
    kind, hosts = told[0][0], {entry[4][0] for entry in told if entry[0] is told[0][0]}
    return sorted(f"[{host}]:{port}" if kind is socket.AF_INET6 else f"{host}:{port}" for host in hosts)
