"""Whether token2wav decodes the prompt of a voice as one block, which its replicas say when they
come up. It decides how many tokens the first message of the LLM has, and no sample.
"""

import asyncio
import contextlib
import logging
from typing import cast

import grpc

from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.v1 import info_pb2, info_pb2_grpc

log = logging.getLogger(__name__)
_ANSWER_SECONDS = 2.0
_RETRY_SECONDS = 10.0


class PromptGrid:
    """setting: what is so, None: as the replicas of token2wav say. Run `run` in a task of its own;
    `changed` wakes it when a replica may have come up.
    """

    def __init__(self, token2wav: ReplicaSet, setting: bool | None) -> None:
        self._token2wav, self._asks = token2wav, setting is None
        self._asked: set[Replica] = set()
        self._changed = asyncio.Event()
        self.as_block = bool(setting)
        """What the latest replica said; until one has, that the grid starts at the prompt."""

    def changed(self) -> None:
        """Call when the health of a stage may have changed. A replica that comes back counts as a
        new one.
        """
        self._asked.intersection_update(self._token2wav.serving_replicas())
        self._changed.set()

    async def run(self) -> None:
        """Ask every replica that comes up, until cancelled; one that does not answer again after a
        while.
        """
        while self._asks:
            self._changed.clear()
            waiting = [replica for replica in self._token2wav.serving_replicas() if replica not in self._asked]
            for replica in waiting:
                await self._ask(replica)
            unanswered = not self._asked.issuperset(waiting)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if unanswered else None):
                    await self._changed.wait()

    async def _ask(self, replica: Replica) -> None:
        stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(replica.channel))
        try:
            answer = await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            # Without an answer a first sound may come later, and sounds the same.
            log.warning("token2wav at %s does not say how it decodes prompts: %s", replica.target, error.code().name)
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._asked.add(replica)
            return
        self._asked.add(replica)
        self.as_block = answer.info.prompt_as_block
