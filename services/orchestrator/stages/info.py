"""GetInfo and WarmUp of all replicas of the stages."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

import grpc

from cosyserve.engines.engine_load import Load
from cosyserve.errors import Unavailable
from cosyserve.rpc.calls import as_error
from cosyserve.rpc.replicas import ReplicaSet
from cosyserve.v1 import info_pb2, info_pb2_grpc
from services.orchestrator.load_control.adaptive_limit import StageLoad

ANSWER_SECONDS = 2.0
WARM_UP_SECONDS = 120.0
MOST_SILENT_ROUNDS = 30
"""A serving replica that does not answer keeps its last load for so many rounds in a row: it may be
too busy to answer.
"""
_STEP_LIMITS = ("widest_step", "max_sequences")
"""Settings of token2wav and the LLM that bound how many streams one step of the engine takes."""
_NO_REPLICA = grpc.StatusCode.UNAVAILABLE
T = TypeVar("T")


class StageReply(NamedTuple, Generic[T]):
    """The answer of one process, or the error instead. address: of the process."""

    stage: ReplicaSet
    address: str
    result: T | grpc.aio.AioRpcError


class _LastReport(NamedTuple):
    """The last load of a replica. silent_rounds: rounds in a row without an answer since then."""

    load: StageLoad
    silent_rounds: int = 0


class StageInfo:
    """Queries all replicas of the given stages."""

    def __init__(self, stages: Sequence[ReplicaSet]) -> None:
        self._stages = stages
        self._known: dict[tuple[str, str], _LastReport] = {}

    async def ask(self) -> tuple[list[info_pb2.ServiceInfo], list[str]]:
        """The ServiceInfo of each replica, and those that did not answer, as `stage: STATUS`."""
        infos, silent = list[info_pb2.ServiceInfo](), list[str]()
        for stage, _, answer in await self._of_all(_get_info):
            if isinstance(answer, grpc.aio.AioRpcError):
                silent.append(f"{stage.stage}: {answer.code().name}")
            else:
                infos.append(answer.info)
        # Of a name that has no address yet there is no replica to ask.
        silent += [f"{stage.stage}: {_NO_REPLICA.name}" for stage in self._stages if not stage.replicas]
        return infos, silent

    async def loads(self, *, everywhere: bool) -> list[StageLoad]:
        """The load of each serving replica. everywhere: what a second of speech costs counts on any
        device; otherwise only where streams do not share steps, and fakes have no load. A replica
        that does not answer keeps its last load, for `MOST_SILENT_ROUNDS` rounds in a row.
        """
        known: dict[tuple[str, str], _LastReport] = {}
        for stage, address, answer in await self._of_all(_get_info, serving=True):
            before = self._known.get((stage.stage, address))
            if not isinstance(answer, grpc.aio.AioRpcError):
                if _is_fake(answer.info) and not everywhere:
                    continue
                load = StageLoad(
                    stage.stage, address, _load_of(answer.info), not everywhere and _shares_steps(answer.info)
                )
                known[stage.stage, address] = _LastReport(load)
            elif before is not None and before.silent_rounds < MOST_SILENT_ROUNDS:
                known[stage.stage, address] = before._replace(silent_rounds=before.silent_rounds + 1)
        self._known = known
        return [one.load for one in known.values()]

    async def warm_up(self) -> None:
        """Warm up every serving replica. Raises the error of the first one that fails, and
        Unavailable if a stage has none.
        """
        for stage in self._stages:
            if not stage.serving:
                raise Unavailable(f"{stage.stage} has no replica that serves", retry_after=1.0)
        answers = await self._of_all(
            lambda stub: stub.WarmUp(info_pb2.WarmUpRequest(), timeout=WARM_UP_SECONDS), serving=True
        )
        warm = {stage for stage, _, answer in answers if not isinstance(answer, grpc.aio.AioRpcError)}
        for stage, _, answer in answers:
            # A process that has just gone or is still loading warms up by itself.
            if isinstance(answer, grpc.aio.AioRpcError) and not (
                stage in warm and answer.code() is grpc.StatusCode.UNAVAILABLE
            ):
                raise as_error(answer, stage.stage)

    async def _of_all(
        self, call: "Callable[[info_pb2_grpc.InfoServiceAsyncStub], Awaitable[T]]", *, serving: bool = False
    ) -> list[StageReply[T]]:
        async def one(channel: grpc.aio.Channel) -> T | grpc.aio.AioRpcError:
            try:
                return await call(cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(channel)))
            except grpc.aio.AioRpcError as error:
                return error

        pairs = [
            (stage, replica)
            for stage in self._stages
            for replica in (stage.serving_replicas() if serving else stage.replicas)
        ]
        answers = await asyncio.gather(*(one(replica.channel) for _, replica in pairs))
        return [
            StageReply(stage, replica.target, answer) for (stage, replica), answer in zip(pairs, answers, strict=True)
        ]


def _get_info(stub: "info_pb2_grpc.InfoServiceAsyncStub") -> Awaitable[info_pb2.GetInfoResponse]:
    return stub.GetInfo(info_pb2.GetInfoRequest(), timeout=ANSWER_SECONDS)


def _is_fake(info: info_pb2.ServiceInfo) -> bool:
    return info.identity.backend == "fake"


def _shares_steps(info: info_pb2.ServiceInfo) -> bool:
    """Whether one more stream in a step costs less than a step of its own: on a GPU, whatever the
    engine, unless its settings give a step one stream.
    """
    alone = any(info.limits.get(name) == 1 for name in _STEP_LIMITS)
    return not alone and not info.identity.device.startswith("cpu")


def _load_of(info: info_pb2.ServiceInfo) -> Load | None:
    """The load of a replica; None if it reports none, or an impossible one, as before its first
    speech.
    """
    if not info.HasField("load") or not 0 < info.load.real_time_factor < math.inf:
        return None
    return Load(info.load.real_time_factor, info.load.pieces, info.load.late_pieces)
