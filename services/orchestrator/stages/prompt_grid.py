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
    `changed` wakes it when a replica may have come up or gone.
    """

    def __init__(self, token2wav: ReplicaSet, setting: bool | None) -> None:
        self._token2wav, self._asks = token2wav, setting is None
        self._answers: dict[Replica, bool] = {}
        self._changed = asyncio.Event()
        self.as_block = bool(setting)
        """What the latest of the replicas that serve said, or the last one that did; until one
        has, that the grid starts at the prompt.
        """

    def changed(self) -> None:
        """Call when the health of a stage may have changed. A replica that comes back counts as a
        new one.
        """
        serving = self._token2wav.serving_replicas()
        self._answers = {replica: said for replica, said in self._answers.items() if replica in serving}
        self._choose()
        self._changed.set()

    async def run(self) -> None:
        """Ask every replica that comes up, until cancelled; one that does not answer again after a
        while.
        """
        while self._asks:
            self._changed.clear()
            waiting = [replica for replica in self._token2wav.serving_replicas() if replica not in self._answers]
            await asyncio.gather(*map(self._ask, waiting))
            unanswered = not self._answers.keys() >= set(waiting)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if unanswered else None):
                    await self._changed.wait()

    def _choose(self) -> None:
        for said in self._answers.values():
            self.as_block = said

    async def _ask(self, replica: Replica) -> None:
        stub = cast("info_pb2_grpc.InfoServiceAsyncStub", info_pb2_grpc.InfoServiceStub(replica.channel))
        try:
            answer = await stub.GetInfo(info_pb2.GetInfoRequest(), timeout=_ANSWER_SECONDS)
        except grpc.aio.UsageError:
            return  # its address has gone from its name, and its channel is closed
        except grpc.aio.AioRpcError as error:
            # Without an answer a first sound may come later, and sounds the same.
            log.warning("token2wav at %s does not say how it decodes prompts: %s", replica.target, error.code().name)
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                return
            said = False
        else:
            said = answer.info.prompt_as_block
        if replica in self._token2wav.serving_replicas():  # it may have gone meanwhile
            self._answers[replica] = said
            self._choose()
