"""Entry point of the token2wav server: `python -m services.token2wav`.

Settings come from COSYSERVE_TOKEN2WAV_* variables. Exit status: 2 for invalid settings, 3 for a
model that cannot be used, 1 for an engine that failed while it served.
"""

import asyncio
import logging
import sys
from dataclasses import dataclass
from functools import partial

from cosyserve.engines.benchmark_note import TOKEN2WAV
from cosyserve.engines.fallback import LOAD_SECONDS, LoadedEngine, check_load_seconds, first_speaking
from cosyserve.engines.gpu_facts import TENSORRT
from cosyserve.errors import CosyserveError
from cosyserve.rpc.server import Close, Service, run
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.rpc.service_info import ServiceFacts, libraries, limits_of
from cosyserve.v1 import token2wav_pb2_grpc
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.interface import takes_prompt_whole
from services.token2wav.inputs.request import Profile
from services.token2wav.loading import load_chosen
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.first_chunk_delay import LONGEST_HOLD_SECONDS
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.servicer import Token2WavServicer
from services.token2wav.stream import warm_up

NAME = "cosyserve.v1.Token2WavService"
PREFIX = "COSYSERVE_TOKEN2WAV_"
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Token2WavSettings(ServerSettings, EngineSettings):
    """Settings of the server, of its engine (`EngineSettings`) and of its scheduler."""

    backend: str = "auto"
    """`auto`, `torch`, `tensorrt`, `onnxruntime` or `fake`.

    `auto` takes the first of these that can serve on this host: TensorRT (only where `auto_first`
    or the result of `cosyserve start --benchmark` selects it), torch with the paged engine, torch
    with the readable engine on CUDA, torch on the CPU. `torch` is the same list without TensorRT.
    Every fallback is logged and reported by GetInfo.
    """
    device: str = "auto"
    """Device as torch names it, or `auto`: CUDA if it can serve, else the CPU."""
    strict: bool = False
    """Disables fallback: if the first candidate cannot serve, the start fails with the reason."""
    load_seconds: float = LOAD_SECONDS
    """Time limit for loading one engine, in seconds. An engine that exceeds it is skipped; if it is
    the last candidate, the start fails.
    """
    auto_first: str = ""
    """`tensorrt`: `auto` tries TensorRT first. Empty: it does so only where a benchmark on this
    host found TensorRT to be faster.
    """
    max_streams: int = 16
    """Maximum number of sentences decoded concurrently, at least 1."""
    reserve_tokens: int = 250
    """Tokens (25 per second) for which each stream reserves state memory in addition to its prompt,
    at least 0.

    A stream whose reservation does not fit into `state_bytes` is refused, unless it is the only
    one. Sentences that are longer than the reserve may exhaust `state_bytes`; then only the oldest
    stream with pending work continues, and the next one whenever that stream waits for its reader
    or for tokens.
    """
    idle_seconds: float = 60.0
    """Maximum time in seconds that DecodeStream waits for tokens, more than 0."""
    hold_seconds: float | None = None
    """Maximum time in seconds that a finished first chunk is held back if the second one would
    arrive too late for the player, 0 to 5. None: 0.5 in an engine whose steps batch several
    streams, 2 in an engine that decodes one stream per step.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_load_seconds(self.load_seconds)
        if self.auto_first and self.auto_first not in TOKEN2WAV.hosted:
            raise ValueError(f"auto_first is {self.auto_first!r}, allowed: {', '.join(TOKEN2WAV.hosted)}, or empty")
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
    """Load the engine, decode a warm-up sentence, and register the servicer."""
    limits = Limits(
        max_streams=settings.max_streams, state_bytes=settings.state_bytes, reserve_tokens=settings.reserve_tokens
    )

    async def start_batcher(backend: Backend) -> Batcher:
        batcher = Batcher(backend.decoders, limits, service.broken, hold_seconds=settings.hold_seconds)
        try:
            log.info(
                "engine %s, first words after %.1f s", backend.identity, await warm_up(batcher, backend.warm_up_profile)
            )
            batcher.load.forget()
            if backend.identity.device.startswith("cpu"):
                # On a CPU admission depends on the measured cost of speech. The first sentence
                # pays for initialization, so a second one measures the cost.
                await warm_up(batcher, backend.warm_up_profile)
        except CosyserveError:
            await asyncio.to_thread(batcher.close)
            backend.release()
            raise
        return batcher

    choose = partial(
        load_chosen,
        settings.backend,
        settings,
        strict=settings.strict,
        load_seconds=settings.load_seconds,
        auto_first=settings.auto_first,
    )
    footing, batcher = await first_speaking(
        lambda below: choose(below=below),
        start_batcher,
        f"{settings.model}: the engine cannot speak its first sentence",
    )
    backend = footing.engine
    servicer = Token2WavServicer(backend.identity, batcher, settings.idle_seconds, backend.first_hop_tokens)
    token2wav_pb2_grpc.add_Token2WavServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]

    warming = partial(warm_up, batcher, backend.warm_up_profile)
    service.info.describe(facts(settings, footing), warming, load=lambda: batcher.load.now)

    async def close() -> None:
        await asyncio.to_thread(batcher.close)
        backend.release()

    return close


def facts(settings: Token2WavSettings, footing: LoadedEngine[Backend]) -> ServiceFacts:
    """The values that GetInfo reports about this server."""
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
        capacity=settings.max_streams,
        limits=limits_of(settings, *names, "max_message_bytes"),
        prompt_as_block=takes_prompt_whole(footing.engine.decoders.get(Profile.CONTINUOUS)),
        libraries=libraries("torch", "triton", *TENSORRT, "onnxruntime", "onnxruntime-gpu"),
    )


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.rpc.server)."""
    return run(NAME, PREFIX, Token2WavSettings, lambda settings: partial(load, settings))


if __name__ == "__main__":
    sys.exit(main())
