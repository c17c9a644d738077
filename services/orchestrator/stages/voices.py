"""Client of the frontend for stored voices."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

import grpc
from cosyserve.rpc.calls import answer

from cosyserve import telemetry
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc, voice_pb2
from services.orchestrator.stages.failover import RetryPolicy, StallTimer, call_with_failover

Answer = TypeVar("Answer")


class VoiceStage:
    """Every call is repeated on another replica if one fails: all of them share the voices."""

    def __init__(self, replicas: ReplicaSet, policy: RetryPolicy, making: RetryPolicy) -> None:
        """making: as `policy`, for the analysis of a recording."""
        self._replicas = replicas
        self._policy = policy
        self._making = making

    async def page(self, size: int, token: str) -> tuple[list[voice_pb2.VoiceSummary], str]:
        """A page of the voices, and the token of the next page."""
        request = frontend_pb2.FrontendServiceListVoicesRequest(page_size=size, page_token=token)
        answer = await self._call(lambda stub: stub.ListVoices(request, metadata=telemetry.outgoing()))
        return list(answer.voices), answer.next_page_token

    async def describe(self, voice_id: str) -> voice_pb2.VoiceDetails:
        """The details of a voice; NotFound if there is none."""
        request = frontend_pb2.DescribeVoiceRequest(id=voice_id)
        return (await self._call(lambda stub: stub.DescribeVoice(request, metadata=telemetry.outgoing()))).voice

    async def create(self, draft: voice_pb2.VoiceDraft) -> voice_pb2.VoiceDetails:
        """Create a voice. The draft needs an id and a request_id, so that a second attempt returns
        the voice that the first one created.
        """
        request = frontend_pb2.FrontendServiceCreateVoiceRequest(draft=draft)
        return (
            await self._call(lambda stub: stub.CreateVoice(request, metadata=telemetry.outgoing()), making=True)
        ).voice

    async def update(
        self, voice_id: str, metadata: voice_pb2.VoiceMetadata, fields: Sequence[str]
    ) -> voice_pb2.VoiceDetails:
        """Change the metadata of a voice: `fields` of `metadata`, all if none is named."""
        request = frontend_pb2.FrontendServiceUpdateVoiceRequest(id=voice_id, metadata=metadata)
        request.update_mask.paths.extend(fields)
        return (await self._call(lambda stub: stub.UpdateVoice(request, metadata=telemetry.outgoing()))).voice

    async def delete(self, voice_id: str) -> None:
        """Delete a voice; NotFound if there is none."""
        request, tries = frontend_pb2.FrontendServiceDeleteVoiceRequest(id=voice_id), 0

        async def once(stub: "frontend_pb2_grpc.FrontendServiceAsyncStub") -> None:
            nonlocal tries
            tries += 1
            try:
                await stub.DeleteVoice(request, metadata=telemetry.outgoing())
            except grpc.aio.AioRpcError as error:
                # The replica that failed before may have deleted it.
                if tries == 1 or error.code() != grpc.StatusCode.NOT_FOUND:
                    raise

        await self._call(once)

    async def _call(
        self, call: "Callable[[frontend_pb2_grpc.FrontendServiceAsyncStub], Awaitable[Answer]]", *, making: bool = False
    ) -> Answer:
        return await ask(self._replicas, self._making if making else self._policy, call)


async def ask(
    replicas: ReplicaSet,
    policy: RetryPolicy,
    call: "Callable[[frontend_pb2_grpc.FrontendServiceAsyncStub], Awaitable[Answer]]",
) -> Answer:
    """The response to `call` from one of the `replicas` of the frontend, and from another one if
    that fails (`call_with_failover`).
    """
    answers: list[Answer] = []

    async def attempt(replica: Replica, _: StallTimer) -> None:
        stub = frontend_pb2_grpc.FrontendServiceStub(replica.channel)
        answers.append(await answer(call(cast("frontend_pb2_grpc.FrontendServiceAsyncStub", stub))))

    await call_with_failover(replicas, policy, attempt)
    return answers[0]
