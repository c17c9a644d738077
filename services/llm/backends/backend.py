"""The seam between the service and whatever makes its tokens. Heavy libraries are imported by the
chosen backend alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from cosyserve.engines.fallback import Below, Footing, Rung, descend
from cosyserve.engines.identity import Identity
from services.llm.backends.candidates import HOSTED, TENSORRT_LLM, VLLM, hosted_first, rungs
from services.llm.generation.config import LengthBounds
from services.llm.generation.request import Generation, Hop
from services.llm.guards.alignment import AlignmentTable
from services.llm.settings import LlmSettings


class Backend(Protocol):
    """An engine for speech tokens."""

    @property
    def identity(self) -> Identity: ...

    @property
    def text_vocabulary(self) -> int:
        """Text ids below it are legal."""
        ...

    @property
    def lengths(self) -> LengthBounds:
        """How many speech tokens a sentence can have."""
        ...

    @property
    def alignment(self) -> AlignmentTable | None:
        """Which tokens say which text id; None when the model directory does not tell."""
        ...

    def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """The hops of one sentence. The first is empty and comes as soon as the sentence is
        accepted; during a replay an empty one comes each `grouping.rest` tokens that are taken as
        made; the last carries the outcome.

        Closing the generator, or cancelling who waits for it, stops the work and frees its memory.
        Raises Overloaded when full, InvalidRequest for a text that no sequence of this engine can
        hold, InternalFault when the engine fails.
        """
        ...

    async def warm_up(self) -> None:
        """Run once what a request runs."""
        ...

    async def close(self) -> None:
        """End all work with Unavailable and release everything."""
        ...


def load_backend(settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> Backend:
    """As `load_chosen`, without the account of it."""
    return load_chosen(settings, on_fault).engine


def load_chosen(
    settings: LlmSettings, on_fault: Callable[[str], None] | None = None, below: Below | None = None
) -> Footing[Backend]:
    """The first backend that the settings allow and that serves here, ready but for its warm-up;
    behind `below`, where one did not speak. Blocks while it reads the model.

    on_fault: called with the reason, from any thread, should the engine break for good. Raises
    ModelError naming what is wrong in the model directory, SettingsError for engines that cannot
    serve here.
    """

    def rung(name: str, wanted: LlmSettings) -> Rung[Backend]:
        return Rung(
            name,
            lambda: _load(wanted, on_fault),
            needs_files=name in HOSTED,
            discard=lambda late: asyncio.run(late.close()),
        )

    ladder = [rung(name, wanted) for name, wanted in rungs(settings, hosted_first(settings))]
    return descend(
        "llm",
        ladder,
        strict=settings.strict,
        setting="COSYSERVE_LLM_STRICT",
        below=below,
        load_seconds=settings.load_seconds,
    )


def _load(settings: LlmSettings, on_fault: Callable[[str], None] | None) -> Backend:
    if settings.backend == "fake":
        from services.llm.backends.fake_backend import FakeBackend

        return FakeBackend(settings)
    if settings.backend == TENSORRT_LLM:
        from services.llm.hosted.trtllm_backend import load_trtllm

        return load_trtllm(settings, on_fault)
    if settings.backend == VLLM:
        from services.llm.hosted.vllm.vllm_backend import load_vllm

        return load_vllm(settings, on_fault)
    from services.llm.backends.torch_backend import TorchBackend

    return TorchBackend.load(settings, on_fault)
