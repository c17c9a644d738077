"""What the stages say of themselves, and their warm-up, through the orchestrator."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
        for stage, answer in answers:
            if isinstance(answer, grpc.aio.AioRpcError):
                raise as_error(answer, stage.stage, str(stage))

    async def _of_all(
        self, call: "Callable[[info_pb2_grpc.InfoServiceAsyncStub], Awaitable[T]]", *, serving: bool = False
    ) -> list[tuple[ReplicaSet, T | grpc.aio.AioRpcError]]:
        async def one(stage: ReplicaSet, replica: Replica) -> tuple[ReplicaSet, T | grpc.aio.AioRpcError]:
            try:
                return stage, await call(cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(replica.channel)))
            except grpc.aio.AioRpcError as error:
                return stage, error

        pairs = [(stage, replica) for stage in self._stages for replica in (stage.serving_replicas() if serving else stage.replicas())]
        return list(await asyncio.gather(*(one(stage, replica) for stage, replica in pairs)))
