"""The backend on a third-party engine: sentences become runs, and the ids of a run go to the
sentence's script.

    script -> inputs as ids of the extended vocabulary, rules -> run -> ids -> script -> ...

A sentence of known text is one run. Text that arrives over time needs a run for each block of
speech: these engines accept no input in the middle of a sequence, so each run begins with all
earlier inputs. The engine's logits processor (`services.llm.hosted.run_sampler`) samples by the
same rules and draws as the other backends, so equal logits give equal tokens.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import torch

from cosyserve.engines.compatibility import Identity
from cosyserve.engines.device_loss import LossReason, is_device_loss, loss_reason
from cosyserve.errors import CosyserveError, DeviceLost, InternalFault, InvalidRequest, Unavailable
from services.llm.backends.backend import Admission, generate_first_hop
from services.llm.engine.weights import ServedModel
from services.llm.generation.interleaved_text import ArrivingText
from services.llm.generation.occupancy import Occupancy
from services.llm.generation.outbox import Outbox, non_finite
from services.llm.generation.request import Generation, Hop, Profile
from services.llm.generation.requested_script import requested_script
from services.llm.generation.script import Script
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary
from services.llm.hosted.run_sampler import RunSampler, signals
from services.llm.hosted.runtime import ProcessWatch, Runtime
from services.llm.settings import LlmSettings

log = logging.getLogger(__name__)
MOST_FAILED_RUNS = 3
"""This many runs that fail in a row, with an error that is no CosyserveError, stop the backend.
"""
SILENT_SECONDS = 120.0
"""A run without a result for this long means that the engine hangs: it never has more runs than it
has slots.
"""
PROCESS_ENDED = "a process of the speech-token engine has ended, and the service has to be restarted"
T = TypeVar("T")


class EngineSilent(Exception):
    """A run had no result for SILENT_SECONDS."""


class HostedSequence:
    """A sentence on a third-party engine: its inputs, and the hops that the reader has not taken.
    Used by one task.
    """

    def __init__(self, script: Script, generation: Generation) -> None:
        self.script = script
        self.hops: deque[Hop] = deque()
        self.outbox = Outbox(self._deliver, generation.grouping, generation.replay)
        self.fed: list[int] = []
        """Inputs so far, as ids of the extended vocabulary."""

    def _deliver(self, item: Hop | Exception) -> None:
        assert isinstance(item, Hop)  # noqa: S101
        self.hops.append(item)

    def feed(self, vocabulary: ExtendedVocabulary) -> int:
        """Append the inputs that the script wants to run next; returns how many."""
        inputs = [vocabulary.id_of(item) for item in self.script.take()]
        self.fed += inputs
        return len(inputs)

    def accept(self, vocabulary: ExtendedVocabulary, extended: list[int]) -> bool:
        """Apply decisions of the engine, in order; True when the run is over. Raises NonFinite, and
        InternalFault for an id that is no decision.
        """
        not_finite, bypassed = signals(vocabulary.speech)
        for one in extended:
            token = vocabulary.speech_id(one)
            if token == not_finite:
                raise non_finite(self.script)
            if token == bypassed:
                raise InternalFault("the speech-token engine sampled a token without its logits processor")
            if token >= vocabulary.speech.tokens:
                self.settle(self.script.rules.run_end)
                return True
            self.settle(token)
            if self.script.finish is not None:
                return True
            self.feed(vocabulary)
        return False

    def settle(self, token: int) -> None:
        """Pass a decision to the script, and the resulting token to the outbox."""
        self.outbox.decided(self.script, lambda: self.script.accept(token))
        if self.script.finish is not None:
            self.outbox.finish(self.script.finish, self.script.token_count)


class HostedBackend:
    """model: from which the engine was built. on_fault: called once with the reason when the engine
    has failed for good.
    """

    def __init__(
        self,
        runtime: Runtime,
        vocabulary: ExtendedVocabulary,
        model: ServedModel,
        identity: Identity,
        settings: LlmSettings,
        on_fault: Callable[[str], None] | None = None,
    ) -> None:
        self.identity, self.alignment = identity, model.alignment
        self.lengths, self.shortest_prompt = model.config.lengths, model.config.shortest_prompt
        # The published embedding has more rows than the tokenizer has ids; speech ids begin after
        # the tokenizer's ids.
        self.text_vocabulary = min(model.config.text_vocabulary, vocabulary.text_ids)
        self._runtime, self._vocabulary, self._config = runtime, vocabulary, model.config
        self._max_positions, self._on_fault = settings.max_positions, on_fault
        self.admission = Admission(settings)
        self._failed_runs = 0
        self._stopped_by: tuple[type[CosyserveError], str] | None = None
        self._waits: set[asyncio.Timeout] = set()
        self._watch: ProcessWatch | None = None

    @property
    def occupancy(self) -> Occupancy:
        return self.admission.running.occupancy

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        if not isinstance(generation.text, tuple) and generation.sampling.profile is Profile.UPSTREAM:
            raise InvalidRequest(
                "profile upstream feeds inputs twice when text arrives over time, which backend "
                f"{self.identity.backend} cannot do; backend torch can"
            )
        requested = requested_script(generation, self._config, self._max_positions)
        script, text = requested.script, requested.text
        self._check_open()
        async with contextlib.AsyncExitStack() as held:
            if text is not None:
                await held.enter_async_context(contextlib.aclosing(text))
            held.enter_context(self.admission.admit(text_arrives=text is not None))
            sequence = HostedSequence(script, generation)
            yield Hop([])
            while script.finish is None:
                if script.ready:
                    async with contextlib.aclosing(self._run(sequence)) as pieces:
                        async for _ in pieces:
                            while sequence.hops:
                                yield sequence.hops.popleft()
                elif text is not None and isinstance(script, ArrivingText):
                    ids = await self._unless_closed(anext(text, None))
                    if ids is None:
                        script.end()
                    else:
                        script.feed(ids)

    async def warm_up(self) -> None:
        """Run a prompt and a few tokens through the engine. From then on its processes are watched:
        the end of one is a fault, whether or not a run is in the engine.
        """
        if self._watch is None:
            self._watch = ProcessWatch(self._runtime.processes, partial(self._fault, PROCESS_ENDED))
        await generate_first_hop(self.generate, self.shortest_prompt, text_ids=2, tokens=4)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        self._end_all(Unavailable, "the speech-token engine is shutting down")
        try:
            await asyncio.to_thread(self._runtime.close)
        except Exception:  # the caller closes other engines or exits next
            log.exception("the speech-token engine could not be shut down")

    async def _run(self, sequence: HostedSequence) -> AsyncGenerator[None]:
        """One run; yields after each piece of it, when hops may be ready. Raises what ends the
        sentence.
        """
        script, rules = sequence.script, sequence.script.rules
        if script.token_count >= rules.longest:
            sequence.settle(rules.speech.end)
            yield
            return
        await self._unless_closed(self.admission.running.acquire())
        try:
            start_ns, fed = time.time_ns(), sequence.feed(self._vocabulary)
            sampler = RunSampler(rules, script.token_count, script.decisions)
            most = len(script.decisions) + sampler.most
            async with contextlib.aclosing(self._ids(list(sequence.fed), sampler)) as pieces:
                async for extended in pieces:
                    if not sequence.outbox.started:
                        sequence.outbox.prefilled(start_ns, fed)
                    over = sequence.accept(self._vocabulary, extended)
                    yield
                    if over:
                        self._failed_runs = 0
                        return
            # The engine may omit the id that ends a run.
            if len(script.decisions) >= most:
                raise InternalFault("the speech-token engine generated the requested number of ids without an end")
            sequence.settle(rules.run_end)
            yield
        finally:
            self.admission.running.release()

    async def _ids(self, inputs: list[int], sampler: RunSampler) -> AsyncGenerator[list[int]]:
        """The ids of a run; errors of the runtime are translated to ours."""
        try:
            async with contextlib.aclosing(self._runtime.ids(inputs, sampler)) as pieces:
                while (extended := await self._within_time_limit(anext(pieces, None))) is not None:
                    yield extended
            self._failed_runs = 0
        except CosyserveError:
            raise
        except Exception as error:
            log.exception("the speech-token engine failed a run of %d inputs", len(inputs))
            self._failed_runs += 1
            if is_device_loss(error):
                self._fault(reason := loss_reason(error))
                raise DeviceLost(reason) from error
            if isinstance(error, EngineSilent) or self._runtime.is_dead(error) or self._failed_runs >= MOST_FAILED_RUNS:
                self._fault(f"the speech-token engine failed with {type(error).__name__} and has to be restarted")
            raise InternalFault(f"the speech-token engine failed: {type(error).__name__}") from error

    async def _within_time_limit(self, awaited: Awaitable[T]) -> T:
        """As `_unless_closed`; raises EngineSilent after SILENT_SECONDS."""
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                return await self._unless_closed(awaited)
        except TimeoutError as error:
            raise EngineSilent(f"no result for {SILENT_SECONDS:g} s") from error

    def _fault(self, reason: str) -> None:
        """End all work with InternalFault, or DeviceLost for a lost GPU, and report the reason,
        unless the backend has ended.
        """
        if self._stopped_by:
            return
        self._end_all(DeviceLost if isinstance(reason, LossReason) else InternalFault, reason)
        if self._on_fault:
            self._on_fault(reason)

    def _end_all(self, kind: type[CosyserveError], message: str) -> None:
        self._stopped_by = self._stopped_by or (kind, message)
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            wait.reschedule(now)

    def _check_open(self) -> None:
        if self._stopped_by:
            kind, message = self._stopped_by
            raise kind(message)

    async def _unless_closed(self, awaited: Awaitable[T]) -> T:
        """Await the result; raises the error that ended the backend when that comes first."""
        try:
            self._check_open()
        except CosyserveError:
            if asyncio.iscoroutine(awaited):
                awaited.close()
            raise
        try:
            async with asyncio.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    return await awaited
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            self._check_open()
            raise


def hosted_identity(model: ServedModel, backend: str, release: str, precision: str, settings: LlmSettings) -> Identity:
    """The identity of a hosted engine: it depends also on the GPU, on the release of the library
    and on the largest batch.
    """
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    precision = f"{precision}, batches of up to {settings.max_sequences} rows"
    return Identity(model_hash=model.hash, backend=backend, precision=precision, device=f"{gpu}, {backend} {release}")
