"""The PyTorch backend: turns requests into scripts, runs them on the engine, and returns hops to
the event loop.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from functools import partial

import torch

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.gpu_facts import AMPERE
from cosyserve.engines.kernel_cache import Key, Unsuitable, keep_kernels, kernels_compile, triton_version
from cosyserve.engines.one_launch import ONE_LAUNCH
from cosyserve.engines.start_phases import phase
from cosyserve.errors import SettingsError
from services.llm.backends.backend import generate_first_hop
from services.llm.engine.cpu.passes import CpuPasses
from services.llm.engine.engine import Engine
from services.llm.engine.scheduler import Limits, Sequence
from services.llm.engine.stepper import Stepper
from services.llm.engine.weights import ServedModel
from services.llm.generation.occupancy import Occupancy
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import Generation, Hop, TextStream
from services.llm.generation.requested_script import requested_script
from services.llm.gpu.tuning import INSTEAD, check
from services.llm.guards.alignment import AlignmentTable
from services.llm.settings import LlmSettings

log = logging.getLogger(__name__)


class TorchBackend:
    """max_positions: most positions of a sequence."""

    def __init__(
        self, engine: Engine, identity: Identity, max_positions: int, alignment: AlignmentTable | None = None
    ) -> None:
        self.engine, self.identity, self._max_positions, self.alignment = engine, identity, max_positions, alignment
        config = engine.config
        self.text_vocabulary, self.lengths, self.shortest_prompt = (
            config.text_vocabulary,
            config.lengths,
            config.shortest_prompt,
        )

    @classmethod
    def load(cls, settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> "TorchBackend":
        """Read the model directory of the settings and start the engine. Raises ModelError or
        SettingsError.
        """
        if settings.gpu_decode == ONE_LAUNCH and not torch.cuda.is_available():
            raise SettingsError(f"gpu_decode={ONE_LAUNCH} needs a CUDA device, torch finds none")
        device = choose_device(settings.device)
        if settings.gpu_engine == "fused" and settings.device == "auto" and device.type == "cpu":
            raise SettingsError("gpu_engine=fused needs a CUDA device, torch finds none")
        served = ServedModel.read(settings.model)
        invariant = device.type == "cpu" if settings.batch_invariant is None else settings.batch_invariant
        budget = None if settings.kv_budget_mib is None else settings.kv_budget_mib << 20
        limits = Limits(
            running=settings.max_sequences,
            waiting=settings.max_waiting,
            kv_bytes=budget,
            retry_after=settings.retry_after_seconds,
        )

        engine = _fused_engine(served, settings, limits, device, invariant, on_fault) if device.type == "cuda" else None
        fused = engine is not None
        if engine is None:
            model = served.load(device)
            passes = CpuPasses(model, settings.prompt_states_mib << 20) if invariant and device.type == "cpu" else None
            steps = partial(Stepper, model, passes=passes, batch_invariant=invariant)
            engine = Engine(model.config, limits, steps, threads=settings.threads, on_fault=on_fault)
        identity = Identity(
            model_hash=served.hash,
            backend="torch",
            precision=fused_precision_text(settings, invariant)
            if fused
            else precision_text(invariant, settings.max_sequences, device),
            device=device_text(device, settings.threads) + (f", triton {triton_version()}" if fused else ""),
        )
        return cls(engine, identity, min(settings.max_positions, engine.longest), served.alignment)

    @property
    def occupancy(self) -> Occupancy:
        return self.engine.occupancy

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """As `Backend.generate`. The queue of hops needs no limit, since the tokens of a sentence
        are limited.
        """
        hops: asyncio.Queue[Hop | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(item: Hop | Exception) -> None:
            loop.call_soon_threadsafe(hops.put_nowait, item)

        requested = requested_script(generation, self.engine.config, self._max_positions)
        outbox = Outbox(deliver, generation.grouping, generation.replay)
        sequence = self.engine.submit(
            requested.script, requested.positions, outbox, requested.initial_positions, generation.deadline
        )
        feeder = asyncio.create_task(self._feed(sequence, requested.text, hops)) if requested.text else None
        try:
            yield Hop([])
            while True:
                item = await hops.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.outcome:
                    return
        finally:
            self.engine.cancel(sequence)
            if feeder:
                feeder.cancel()
                await asyncio.wait([feeder])

    async def warm_up(self) -> None:
        """One prompt and a few tokens through the engine."""
        await generate_first_hop(self.generate, self.shortest_prompt, text_ids=2, tokens=4)

    async def close(self) -> None:
        await asyncio.to_thread(self.engine.close)

    async def _feed(self, sequence: Sequence, text: TextStream, hops: asyncio.Queue[Hop | Exception]) -> None:
        """Pass text to the engine as it arrives; an error in the stream ends the sentence."""
        try:
            async for ids in text:
                self.engine.feed(sequence, ids)
            self.engine.feed(sequence, None)
        except Exception as error:
            hops.put_nowait(error)


def _fused_engine(
    served: ServedModel,
    settings: LlmSettings,
    limits: Limits,
    device: torch.device,
    invariant: bool,
    on_fault: Callable[[str], None] | None,
) -> Engine | None:
    """The engine with fused steps; None where the settings ask for the readable one, or allow it
    and fused steps cannot run.
    """
    if settings.gpu_engine == "readable":
        return None
    try:
        capability = torch.cuda.get_device_capability(device)
        if capability < AMPERE:
            raise Unsuitable(
                "fused steps need a GPU of compute capability 8.0, this one has "
                f"{'.'.join(map(str, capability))}; {INSTEAD}"
            )
        check(served.config, settings.max_sequences)
        with kernels_compile("fused steps need", "the fused kernels", INSTEAD):
            from services.llm.gpu.runner import start_engine  # needs Triton

            keep_kernels(Key(gpu=torch.cuda.get_device_name(device), capability=capability))
            with phase("reading weights"):
                # Packing starts on the CPU, so that the whole float32 model is never on the device.
                # Not mapped: each weight is read once, and page faults of a mapping take longer.
                weights = served.load(torch.device("cpu"), mapped=False)
            with phase("packing, kernels and graphs"):
                return start_engine(
                    weights,
                    limits,
                    device=device,
                    dtype=torch.float32 if settings.gpu_precision == "float32" else torch.bfloat16,
                    positions=settings.max_positions,
                    invariant=invariant,
                    one_launch=settings.gpu_decode == ONE_LAUNCH,
                    on_fault=on_fault,
                )
    except Unsuitable as error:
        if settings.gpu_engine == "fused" or settings.gpu_decode == ONE_LAUNCH:
            raise
        log.warning("the readable engine is used, which is much slower: %s", error)
    torch.cuda.empty_cache()
    return None


def precision_text(batch_invariant: bool, most_rows: int, device: torch.device) -> str:
    """Precision of the readable engine for its identity: number type, and whether the shape of the
    batch affects rounding.
    """
    if not batch_invariant:
        return f"float32, batches of up to {most_rows} rows"
    return "float32, rows alone" if device.type == "cpu" else "float32"


def fused_precision_text(settings: LlmSettings, batch_invariant: bool) -> str:
    """The same for fused steps. In float32 all batches use the same blocks, so that the shape of
    the batch never affects rounding.
    """
    if settings.gpu_precision == "float32":
        return "float32, fused"
    if batch_invariant:
        return "bfloat16, fused"
    alone = ", one row in one launch" if settings.gpu_decode == ONE_LAUNCH else ""
    return f"bfloat16, fused, batches of up to {settings.max_sequences} rows{alone}"


def device_text(device: torch.device, threads: int) -> str:
    """What determines the rounding of a device: the kind of GPU, or the vector instructions of the
    CPU and the number of threads of an operation; and the version of torch.
    """
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    plural = "s" if threads > 1 else ""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"cpu {capability} {threads} thread{plural}, torch {torch.__version__}"


def choose_device(wanted: str) -> torch.device:
    """`auto`: CUDA where there is a device. Raises SettingsError when CUDA is asked for and
    missing.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise SettingsError("torch finds no CUDA device")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
