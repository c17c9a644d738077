"""Whether the gateway lives, and whether the speech service behind it can serve."""

import contextlib

import grpc
from fastapi import APIRouter, FastAPI, Request, Response
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cosyserve.client.target_channel import channel_to
from cosyserve.tls.settings import ClientTls

router = APIRouter(include_in_schema=False)
_SECONDS = 2.0


class SpeechServiceHealth:
    """The health of the public gRPC service at `target`, asked over a connection of its own; of
    several servers behind a name, that of one that serves, if there is one. connections: as in
    `channel_to`.
    """

    def __init__(self, target: str, tls: ClientTls | None = None, connections: int = 1) -> None:
        self._channel = channel_to(target, tls, own_connection=True, connections=connections)
        self._stub = health_pb2_grpc.HealthStub(self._channel)

    async def state(self) -> str:
        """SERVING, another state by its name, or the status of a call that failed."""
        try:
            answer = await self._stub.Check(health_pb2.HealthCheckRequest(), timeout=_SECONDS)  # type: ignore[attr-defined]
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    async def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._channel.close()


async def state_of(app: FastAPI) -> str:
    """SERVING if requests can be served, DRAINING, or what is wrong with the speech service."""
    return "DRAINING" if app.state.drain.begun else str(await app.state.health.state())


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
@router.get("/health")
async def ready(request: Request, response: Response) -> dict[str, str]:
    """200 if requests can be served, else 503; not while the gateway drains."""
    state = await state_of(request.app)
    if state != "SERVING":
        response.status_code = 503
    return {"status": "ok" if state == "SERVING" else "unavailable", "orchestrator": state}
