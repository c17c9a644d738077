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
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from cosyserve.engines.compatibility import Identity
from cosyserve.errors import CosyserveError, InternalFault, InvalidRequest, Unavailable
from cosyserve.spec import END_OF_SPEECH, FILL
from services.llm.backends.backend import Admission
from services.llm.generation.config import LlmConfig
from services.llm.generation.interleaved_text import ArrivingText, ContinuousText
from services.llm.generation.request import Generation, Grouping, Hop, Profile, Prompt, Sampling
from services.llm.generation.requested_script import limited_text, longest_arriving_text, positions_of_whole_text
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import Script
from services.llm.generation.whole_text import WholeText
from services.llm.guards.alignment import AlignmentTable
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary
from services.llm.hosted.hosted_backend import HostedSequence
from services.llm.hosted.run_sampler import RunSampler
from services.llm.hosted.runtime import ProcessWatch, Run, Runtime
from services.llm.settings import LlmSettings

log = logging.getLogger(__name__)
MOST_FAILED_RUNS = 3
"""This many runs that fail in a row, with an error that is no CosyserveError, stop the backend.
"""
SILENT_SECONDS = 120.0
"""A run without a result for this long means that the engine hangs: it never has more runs than it
has slots.
"""
T = TypeVar("T")


class EngineSilent(Exception):
    """A run had no result for SILENT_SECONDS."""


class HostedBackend:
    """config: of the model directory from which the engine was built. on_fault: called once with
    the reason when the engine has failed for good.
    """

    def __init__(
        self,
        runtime: Runtime,
        vocabulary: ExtendedVocabulary,
        config: LlmConfig,
        identity: Identity,
        settings: LlmSettings,
        alignment: AlignmentTable | None = None,
        on_fault: Callable[[str], None] | None = None,
    ) -> None:
        self.identity, self.alignment = identity, alignment
        # The published embedding has more rows than the tokenizer has ids; speech ids begin after
        # the # tokenizer's ids.
        self.text_vocabulary = min(config.text_vocabulary, vocabulary.text_ids)
        self.lengths = config.lengths
        self._runtime, self._vocabulary, self._config = runtime, vocabulary, config
        self._max_positions, self._on_fault = settings.max_positions, on_fault
        self.admission = Admission(settings)
        self._failed_runs = 0
        self._stopped_by: tuple[type[CosyserveError], str] | None = None
        self._waits: set[asyncio.Timeout] = set()
        self._watch: ProcessWatch | None = None

    async def generate(self, generation: Generation) -> AsyncGenerator[Hop]:
        """As `Backend.generate`."""
        script, text = self._script(generation)
        self._check_open()
        async with contextlib.AsyncExitStack() as held:
            if text is not None:
                await held.enter_async_context(contextlib.aclosing(text))
            held.enter_context(self.admission.admit(text_arrives=text is not None))
            sequence = HostedSequence(script, generation.grouping)
            yield Hop([])
            while script.finish is None:
                if script.ready:
                    async with contextlib.aclosing(self._run(sequence)) as hops:
                        async for hop in hops:
                            yield hop
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
            self._watch = ProcessWatch(self._runtime.processes, self._process_ended)
        shortest = Generation(prompt=Prompt(), text=(0, 0), sampling=Sampling(), grouping=Grouping(first=4))
        async with contextlib.aclosing(self.generate(shortest)) as hops:
            async for hop in hops:
                if hop.tokens:
                    break

    async def close(self) -> None:
        """As `Backend.close`."""
        if self._watch is not None:
            self._watch.stop()
        self._end_all(Unavailable, "the speech-token engine is shutting down")
        try:
            await asyncio.to_thread(self._runtime.close)
        except Exception:  # the caller closes other engines or exits next
            log.exception("the speech-token engine could not be shut down")

    def _script(self, generation: Generation) -> tuple[Script, AsyncGenerator[list[int]] | None]:
        prompt, sampling, config = generation.prompt, generation.sampling, self._config
        chooser = RepetitionAwareChooser(config.sampling, SeededDraw(sampling.seed, sampling.sentence_index))
        if isinstance(generation.text, tuple):
            positions_of_whole_text(prompt, len(generation.text), self._max_positions, config.lengths)
            return WholeText(
                prompt, generation.text, sampling.profile, chooser, generation.replay, config.lengths
            ), None
        if sampling.profile is Profile.UPSTREAM:
            raise InvalidRequest(
                "profile upstream feeds inputs twice when text arrives over time, which backend "
                f"{self.identity.backend} cannot do; backend torch can"
            )
        most = longest_arriving_text(config, prompt, self._max_positions)
        return ContinuousText(config, prompt, chooser, generation.replay), limited_text(generation.text, most)

    async def _run(self, sequence: "HostedSequence") -> AsyncGenerator[Hop]:
        """The hops of one run. Raises what ends the sentence."""
        script, rules = sequence.script, sequence.script.rules
        if script.token_count >= rules.longest:
            sequence.settle(END_OF_SPEECH)
            for hop in sequence.take_hops():
                yield hop
            return
        await self._unless_closed(self.admission.running.acquire())
        try:
            start_ns, positions = time.time_ns(), len(sequence.fed)
            sequence.feed(self._vocabulary)
            run = Run(list(sequence.fed), RunSampler.of(rules, script.token_count, sequence.decisions))
            most = len(sequence.decisions) + run.most
            async with contextlib.aclosing(self._ids(run)) as pieces:
                async for extended in pieces:
                    if not sequence.outbox.started:
                        sequence.outbox.prefilled(start_ns, len(run.inputs) - positions)
                    over = sequence.accept(self._vocabulary, extended)
                    for hop in sequence.take_hops():
                        yield hop
                    if over:
                        self._failed_runs = 0
                        return
            # The engine may omit the id that ends a run.
            if len(sequence.decisions) >= most:
                raise InternalFault("the speech-token engine generated the requested number of ids without an end")
            sequence.settle(FILL if rules.fill_at is not None else END_OF_SPEECH)
            for hop in sequence.take_hops():
                yield hop
        finally:
            self.admission.running.release()

    async def _ids(self, run: Run) -> AsyncGenerator[list[int]]:
        """The ids of a run; errors of the runtime are translated to ours."""
        try:
            async with contextlib.aclosing(self._runtime.ids(run)) as pieces:
                while (extended := await self._within_time_limit(anext(pieces, None))) is not None:
                    yield extended
            self._failed_runs = 0
        except CosyserveError:
            raise
        except Exception as error:
            log.exception("the speech-token engine failed a run of %d inputs", len(run.inputs))
            self._failed(error)
            raise InternalFault(f"the speech-token engine failed: {type(error).__name__}") from error

    async def _within_time_limit(self, awaited: Awaitable[T]) -> T:
        """As `_unless_closed`; raises EngineSilent after SILENT_SECONDS."""
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                return await self._unless_closed(awaited)
        except TimeoutError as error:
            raise EngineSilent(f"no result for {SILENT_SECONDS:g} s") from error

    def _failed(self, error: Exception) -> None:
        self._failed_runs += 1
        dead = isinstance(error, EngineSilent) or self._runtime.is_dead(error) or self._failed_runs >= MOST_FAILED_RUNS
        if self._stopped_by or not dead:
            return
        reason = f"the speech-token engine failed with {type(error).__name__} and has to be restarted"
        self._end_all(InternalFault, reason)
        if self._on_fault:
            self._on_fault(reason)

    def _process_ended(self) -> None:
        if self._stopped_by:
            return
        reason = "a process of the speech-token engine has ended, and the service has to be restarted"
        self._end_all(InternalFault, reason)
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
