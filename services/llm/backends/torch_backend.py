"""The PyTorch backend: turns requests into scripts, runs them on the engine, and returns hops to
the event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable

import torch

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.kernel_cache import Key, keep_kernels, triton_version
from cosyserve.errors import SettingsError
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.cpu.passes import CpuPasses
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits, Sequence
from services.llm.engine.weights import load_tensors, model_hash
from services.llm.generation.config import LengthBounds, LlmConfig, read_config
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText, UpstreamText
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import Generation, Grouping, Hop, Profile, Prompt, Sampling, TextStream
from services.llm.generation.requested_script import (
    limited_text,
    longest_arriving_text,
    positions_of_prompt,
    positions_of_whole_text,
)
from services.llm.generation.sampling import Chooser, RepetitionAwareChooser, SeededDraw
from services.llm.generation.whole_text import WholeText
from services.llm.gpu.suitability import Unsuitable, check, check_device, kernels_compile
from services.llm.guards.alignment import FILE as ALIGNMENT
from services.llm.guards.alignment import AlignmentTable
from services.llm.settings import LlmSettings

log = logging.getLogger(__name__)


class TorchBackend:
    """max_positions: most positions of a sequence."""

    def __init__(
        self, engine: Engine, identity: Identity, max_positions: int, alignment: AlignmentTable | None = None
    ) -> None:
        self.engine, self.identity, self._max_positions, self.alignment = engine, identity, max_positions, alignment

    @classmethod
    def load(cls, settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> "TorchBackend":
        """Read the model directory of the settings and start the engine. Raises ModelError or
        SettingsError.
        """
        if settings.model is None:
            raise SettingsError("model is not set")
        device = choose_device(settings.device)
        directory = ModelDirectory(settings.model)
        config = read_config(directory)
        table = directory.path / ALIGNMENT
        alignment = AlignmentTable.read(table, config.text_vocabulary) if table.exists() else None
        invariant = device.type == "cpu" if settings.batch_invariant is None else settings.batch_invariant
        budget = None if settings.kv_budget_mib is None else settings.kv_budget_mib << 20
        limits = Limits(
            running=settings.max_sequences,
            waiting=settings.max_waiting,
            kv_bytes=budget,
            retry_after=settings.retry_after_seconds,
        )

        def build(device: torch.device) -> SpeechTokenModel:
            return SpeechTokenModel.build(config, load_tensors(directory, config), device)

        hashed = model_hash(directory)
        engine = (
            _fused_engine(config, build, hashed, settings, limits, device, invariant, on_fault)
            if device.type == "cuda"
            else None
        )
        fused = engine is not None
        if engine is None:
            model = build(device)
            passes = CpuPasses(model, settings.prompt_states_mib << 20) if invariant and device.type == "cpu" else None
            engine = Engine(
                model, limits, batch_invariant=invariant, threads=settings.threads, on_fault=on_fault, passes=passes
            )
        identity = Identity(
            model_hash=hashed,
            backend="torch",
            precision=fused_precision_text(settings, invariant)
            if fused
            else precision_text(invariant, settings.max_sequences, device),
            device=device_text(device, settings.threads) + (f", triton {triton_version()}" if fused else ""),
        )
        return cls(engine, identity, min(settings.max_positions, engine.longest), alignment)

    @property
    def text_vocabulary(self) -> int:
        return self.engine.model.config.text_vocabulary

    @property
    def lengths(self) -> LengthBounds:
        return self.engine.model.config.lengths

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """As `Backend.generate`. The queue of hops needs no limit, since the tokens of a sentence
        are limited.
        """
        hops: asyncio.Queue[Hop | Exception] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(item: Hop | Exception) -> None:
            loop.call_soon_threadsafe(hops.put_nowait, item)

        sequence, text = self._submit(generation, Outbox(deliver, generation.grouping))
        feeder = asyncio.create_task(self._feed(sequence, text, hops)) if text else None
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
        shortest = Generation(prompt=Prompt(), text=(0, 0), sampling=Sampling(), grouping=Grouping(first=4))
        async with contextlib.aclosing(self.generate(shortest)) as hops:
            async for hop in hops:
                if hop.tokens:
                    break

    async def close(self) -> None:
        await asyncio.to_thread(self.engine.close)

    def _submit(self, generation: Generation, outbox: Outbox) -> "tuple[Sequence, TextStream | None]":
        prompt, sampling, config = generation.prompt, generation.sampling, self.engine.model.config
        chooser: Chooser = RepetitionAwareChooser(config.sampling, SeededDraw(sampling.seed, sampling.sentence_index))
        if isinstance(generation.text, tuple):
            capacity = positions_of_whole_text(prompt, len(generation.text), self._max_positions, config.lengths)
            whole = WholeText(prompt, generation.text, sampling.profile, chooser, generation.replay, config.lengths)
            return self.engine.submit(whole, capacity, outbox), None
        most = longest_arriving_text(config, prompt, self._max_positions)
        kind: type[ArrivingText] = UpstreamText if sampling.profile is Profile.UPSTREAM else ContinuousText
        script = kind(config, prompt, chooser, generation.replay)
        return self.engine.submit(script, self._max_positions, outbox, positions_of_prompt(prompt)), limited_text(
            generation.text, most
        )

    async def _feed(self, sequence: Sequence, text: TextStream, hops: asyncio.Queue[Hop | Exception]) -> None:
        """Pass text to the engine as it arrives; an error in the stream ends the sentence."""
        try:
            async for ids in text:
                self.engine.feed(sequence, ids)
            self.engine.feed(sequence, None)
        except Exception as error:
            hops.put_nowait(error)


def _fused_engine(
    config: LlmConfig,
    build: Callable[[torch.device], SpeechTokenModel],
    model: str,
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
        check_device(device)
        check(config, settings.max_sequences)
        with kernels_compile():
            from services.llm.gpu.factory import start_engine  # needs Triton

            capability = torch.cuda.get_device_capability(device)
            keep_kernels(
                Key(gpu=torch.cuda.get_device_name(device), capability=capability, torch=torch.__version__, model=model)
            )
            # Packing starts on the CPU, so that the whole float32 model is never on the device.
            return start_engine(
                build(torch.device("cpu")),
                limits,
                device=device,
                dtype=torch.float32 if settings.gpu_precision == "float32" else torch.bfloat16,
                positions=settings.max_positions,
                invariant=invariant,
                on_fault=on_fault,
            )
    except Unsuitable as error:
        if settings.gpu_engine == "fused":
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
    return "bfloat16, fused" if batch_invariant else f"bfloat16, fused, batches of up to {settings.max_sequences} rows"


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
