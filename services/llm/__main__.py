"""`python -m services.llm`: the speech-token service, set up from `COSYSERVE_LLM_*`.

Exit codes: 2 when the settings, 3 when the model directory cannot be served, 1 when the engine broke; one line on stderr says why.
"""

import asyncio
import sys

from cosyserve.errors import CosyserveError, ModelError
from cosyserve.process import run
from cosyserve.server import Close, Load, Service
from cosyserve.v1 import llm_pb2_grpc
from services.llm.backend import load_backend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings

NAME = "cosyserve.v1.LlmService"
PREFIX = "COSYSERVE_LLM_"


def loader(settings: LlmSettings) -> Load:
    """What `cosyserve.server` runs to make the service ready: model read in a thread, one sentence as warm-up."""

    async def load_service(service: Service) -> Close:
        backend = await asyncio.to_thread(load_backend, settings, service.broken)
        try:
            await backend.warm_up()
        except CosyserveError as error:
            await backend.close()
            raise ModelError(f"{settings.model}: the engine cannot speak its first sentence: {error}") from error
        servicer = LlmServicer(backend, idle_seconds=settings.idle_seconds)
        llm_pb2_grpc.add_LlmServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]
        return backend.close

    return load_service


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.process)."""
    return run(NAME, PREFIX, LlmSettings, loader)


if __name__ == "__main__":
    sys.exit(main())
