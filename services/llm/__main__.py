"""`python -m services.llm`: the speech-token service, configured by `COSYSERVE_LLM_*`.

Exit codes: 2 for unusable settings, 3 for an unusable model directory, 1 when the engine failed;
one line on stderr gives the reason.
"""

import sys

from cosyserve.engines.fallback import LoadedEngine, first_speaking
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.errors import CosyserveError
from cosyserve.generations.generation import SilentTokens
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.rpc.server import Close, Load, Service, run
from cosyserve.rpc.service_info import ServiceFacts, libraries, limits_of
from cosyserve.v1 import llm_pb2_grpc
from services.llm.backends.backend import Backend
from services.llm.gpu.tuning import BUCKETS
from services.llm.loading import FUSED, load_chosen
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings

NAME = "cosyserve.v1.LlmService"
PREFIX = "COSYSERVE_LLM_"


def loader(settings: LlmSettings) -> Load:
    """The function with which `cosyserve.rpc.server` makes the service ready: it loads the model in
    a thread and runs one sentence as warm-up.
    """

    async def load_service(service: Service) -> Close:
        ready = False

        def on_fault(reason: str) -> None:
            if ready:  # before that, the next candidate is loaded instead
                service.broken(reason)

        async def warm_up(engine: Backend) -> None:
            try:
                await engine.warm_up()
            except CosyserveError:
                await engine.close()
                raise

        footing, _ = await first_speaking(
            lambda below: load_chosen(settings, on_fault, below),
            warm_up,
            f"{settings.model}: the engine cannot speak its first sentence",
        )
        backend, ready = footing.engine, True
        servicer = LlmServicer(backend, idle_seconds=settings.idle_seconds, silent=_silent(settings))
        if backend.identity.device.startswith("cpu"):
            # On a CPU the cost of speech limits admission, so it is measured before the first
            # request.
            await servicer.measured.calibrate()
        llm_pb2_grpc.add_LlmServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]
        service.info.describe(facts(settings, footing), backend.warm_up, load=lambda: servicer.measured.load.now)
        return backend.close

    return load_service


def _silent(settings: LlmSettings) -> SilentTokens | None:
    """Of the generation that is served; the fake engine has none."""
    if settings.backend == "fake" or settings.model is None:
        return None
    return generation_of(ModelDirectory(settings.model)).silent


def facts(settings: LlmSettings, footing: LoadedEngine[Backend]) -> ServiceFacts:
    """What GetInfo reports."""
    names = ("max_sequences", "max_waiting", "max_positions", "idle_seconds", "kv_budget_mib", "max_message_bytes")
    return ServiceFacts(
        identity=footing.engine.identity,
        rung=footing.rung,
        refused=footing.refused,
        buckets=tuple(bucket for bucket in BUCKETS if bucket < 2 * settings.max_sequences)
        if footing.rung == FUSED
        else (),
        capacity=settings.max_sequences,
        limits=limits_of(settings, *names),
        libraries=libraries("torch", "triton", "tensorrt_llm", *TENSORRT, "vllm"),
    )


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.rpc.server)."""
    return run(NAME, PREFIX, LlmSettings, loader)


if __name__ == "__main__":
    sys.exit(main())
