"""`python -m services.token2wav`: settings from COSYSERVE_TOKEN2WAV_*, exit status 2 for unusable
ones, 3 for an unusable model, 1 for an engine that broke while it served."""

import asyncio
import dataclasses
import logging
import sys
from dataclasses import dataclass
from functools import partial

from cosyserve.engines.fallback import LOAD_SECONDS, Footing, check_load_seconds, first_that_speaks
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.errors import CosyserveError
from cosyserve.rpc.process import run
from cosyserve.rpc.server import Close, ServerSettings, Service
from cosyserve.rpc.service_info import ServiceFacts, libraries, limits_of
from cosyserve.v1 import token2wav_pb2_grpc
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.loading import NOTED, load_chosen
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.first_chunk_delay import LONGEST_HOLD_SECONDS
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.servicer import Token2WavServicer
from services.token2wav.warm_up import warm_up

NAME = "cosyserve.v1.Token2WavService"
PREFIX = "COSYSERVE_TOKEN2WAV_"
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Token2WavSettings(ServerSettings, EngineSettings):
    """backend: auto, torch, tensorrt, onnxruntime or fake; auto: the first that serves here of
    TensorRT, where `auto_first` or a note of `cosyserve start --benchmark` names it, torch paged,
    torch readable on CUDA, torch on the CPU, and torch: the same without TensorRT; each step down
    is logged and told by GetInfo. auto_first: `tensorrt`, or empty: what was measured to be faster
    here. device: as torch names it, or auto: CUDA where that serves. strict: no step down; where
    the first of these cannot serve, the start fails with the reason. max_streams: sentences decoded
    at once.

    state_bytes: memory for their state (with the published sizes a second of sound, prompt
    included, takes 231 MB in float32, half of it in bfloat16). reserve_tokens: what each stream
    claims of it beside its prompt, 25 for a second; a stream that does not fit is refused, unless
    it is alone. Sentences that are longer than the reserve may use state_bytes up; then only the
    oldest stream with work to do goes on, and the next one whenever that one waits for its reader
    or for tokens. load_seconds: time limit for loading one engine; one that has not loaded by then
    is stepped over, or ends the start where it is the last. idle_seconds: how long DecodeStream
    waits for tokens. hold_seconds: how long a finished first piece may wait for the second, where
    that one would come too late for its player, 0 to 5; None: 0.5 in an engine whose steps take
    several streams, 2 in one that takes one.
    """

    backend: str = "auto"
    device: str = "auto"
    strict: bool = False
    load_seconds: float = LOAD_SECONDS
    auto_first: str = ""
    max_streams: int = 16
    reserve_tokens: int = 250
    idle_seconds: float = 60.0
    hold_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_load_seconds(self.load_seconds)
        if self.auto_first and self.auto_first not in NOTED.hosted:
            raise ValueError(f"auto_first is {self.auto_first!r}, allowed: {', '.join(NOTED.hosted)}, or empty")
        for name in ("max_streams", "state_bytes", "widest_step", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.reserve_tokens < 0:
            raise ValueError(f"reserve_tokens is {self.reserve_tokens}; it must not be negative")
        if not self.idle_seconds > 0:
            raise ValueError(f"idle_seconds is {self.idle_seconds:g}; it must be more than 0")
        if self.hold_seconds is not None and not 0 <= self.hold_seconds <= LONGEST_HOLD_SECONDS:
            raise ValueError(f"hold_seconds is {self.hold_seconds:g}; 0 to {LONGEST_HOLD_SECONDS:g} is allowed")


async def load(settings: Token2WavSettings, service: Service) -> Close:
    """Load the engine, let it speak once, and register the servicer."""
    engine = EngineSettings(
        **{field.name: getattr(settings, field.name) for field in dataclasses.fields(EngineSettings)}
    )
    limits = Limits(
        max_streams=settings.max_streams, state_bytes=settings.state_bytes, reserve_tokens=settings.reserve_tokens
    )

    async def speak(backend: Backend) -> Batcher:
        batcher = Batcher(backend.decoders, limits, service.broken, hold_seconds=settings.hold_seconds)
        try:
            log.info(
                "engine %s, first words after %.1f s", backend.identity, await warm_up(batcher, backend.warm_up_profile)
            )
            batcher.load.forget()
            if backend.identity.device.startswith("cpu"):
                # What speech costs is a limit there, and known before the first request.
                await warm_up(batcher, backend.warm_up_profile)
        except CosyserveError:
            await asyncio.to_thread(batcher.close)
            backend.release()
            raise
        return batcher

    choose = partial(
        load_chosen,
        settings.backend,
        engine,
        strict=settings.strict,
        load_seconds=settings.load_seconds,
        auto_first=settings.auto_first,
    )
    footing, batcher = await first_that_speaks(
        lambda below: choose(below=below), speak, f"{settings.model}: the engine cannot speak its first sentence"
    )
    backend = footing.engine
    servicer = Token2WavServicer(backend.identity, batcher, settings.idle_seconds, settings.first_hop_tokens)
    token2wav_pb2_grpc.add_Token2WavServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]

    async def speak_once() -> None:
        await warm_up(batcher, backend.warm_up_profile)

    service.info.describe(facts(settings, footing), speak_once)
    service.info.measure(load=lambda: batcher.load.now)

    async def close() -> None:
        await asyncio.to_thread(batcher.close)
        backend.release()

    return close


def facts(settings: Token2WavSettings, footing: Footing[Backend]) -> ServiceFacts:
    """For GetInfo."""
    names = (
        "max_streams",
        "state_bytes",
        "reserve_tokens",
        "widest_step",
        "prompt_cache_bytes",
        "idle_seconds",
        "hold_seconds",
    )
    return ServiceFacts(
        identity=footing.engine.identity,
        rung=footing.rung,
        refused=footing.refused,
        buckets=footing.engine.buckets,
        limits=limits_of(settings, *names, "max_message_bytes"),
        libraries=libraries("torch", "triton", *TENSORRT, "onnxruntime", "onnxruntime-gpu"),
    )


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.rpc.process)."""
    return run(NAME, PREFIX, Token2WavSettings, lambda settings: partial(load, settings))


if __name__ == "__main__":
    sys.exit(main())
