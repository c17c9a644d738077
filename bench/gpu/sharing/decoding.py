"""The process whose speech-token model decodes during the passes: `python -m
bench.gpu.sharing.decoding`.

Questions: {"do": "talk", "way": as in `rows`, "pace": seconds, "sentences": how many at once} -> {}
when the first tokens are there; {"do": "hush"} -> {"ms": [...]} from token to token. Fused steps of
the published sizes with random weights.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from bench.gpu.sharing.rows import EARLY, HIGH, NORMAL, SEVERAL
from bench.gpu.sharing.worker import Answer, serve
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.generation.config import LlmConfig
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import Grouping, Hop, Profile, Prompt
from services.llm.generation.requested_script import positions_of_whole_text
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import WholeText

MOST_SENTENCES = 2
POSITIONS = 2048
PROMPT_SPEECH, TEXT_IDS = 87, 20
FIRST_SECONDS = 20.0


class Ear:
    """Hears one sentence token by token. pace: least seconds between two, kept by holding up the
    engine's thread: no step begins.
    """

    def __init__(
        self, pace: float, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pace, self._clock, self._sleep = pace, clock, sleep
        self.times: list[float] = []
        self.error: Exception | None = None
        self.begun, self.over = threading.Event(), threading.Event()

    def deliver(self, item: Hop | Exception) -> None:
        """As `Outbox` calls it, with a token in each hop."""
        if isinstance(item, Exception):
            self.error = item
            self.leave()
            return
        for _ in item.tokens:
            if self.times and (left := self.times[-1] + self._pace - self._clock()) > 0:
                self._sleep(left)
            self.times.append(self._clock())
            self.begun.set()
        if item.outcome:
            self.leave()

    def leave(self) -> None:
        """Wakes the threads that wait for it."""
        self.begun.set()
        self.over.set()

    @property
    def intervals(self) -> list[float]:
        """Milliseconds from token to token."""
        return [1000 * (later - earlier) for earlier, later in zip(self.times, self.times[1:], strict=False)]


class SentenceLoop:
    """A fixed number of sentences at a time, each followed by another, until `hush`."""

    def __init__(self, engine: Engine, pace: float, sentences: int) -> None:
        self._engine, self._pace = engine, pace
        self._lock, self._hushed = threading.Lock(), False
        self._ears: list[list[Ear]] = [[] for _ in range(sentences)]
        self._submitted: list[Any] = [self._next(lane) for lane in range(sentences)]
        self._threads = [threading.Thread(target=self._go_on, args=(lane,), daemon=True) for lane in range(sentences)]
        for thread in self._threads:
            thread.start()

    def until_heard(self) -> None:
        """Wait for the first token of each. Raises TimeoutError."""
        for ears in self._ears:
            if not ears[0].begun.wait(FIRST_SECONDS):
                raise TimeoutError(f"no token came within {FIRST_SECONDS:g} s")

    def hush(self) -> list[float]:
        """Stop; milliseconds from token to token of all sentences. Raises what ended one."""
        with self._lock:
            self._hushed = True
            for sequence, ears in zip(self._submitted, self._ears, strict=True):
                self._engine.cancel(sequence)
                ears[-1].leave()
        for thread in self._threads:
            thread.join()
        heard = [ear for ears in self._ears for ear in ears]
        for error in (ear.error for ear in heard if ear.error):
            raise error
        return [interval for ear in heard for interval in ear.intervals]

    def _go_on(self, lane: int) -> None:
        while True:
            last = self._ears[lane][-1]
            last.over.wait()
            with self._lock:
                if self._hushed or last.error:
                    return
                try:
                    self._submitted[lane] = self._next(lane)
                except Exception as error:  # an engine that broke takes no more
                    last.error = error
                    return

    def _next(self, lane: int) -> Any:
        ear, ears = Ear(self._pace), self._ears[lane]
        words, capacity = sentence(self._engine.config, 100 * lane + len(ears))
        sequence = self._engine.submit(words, capacity, Outbox(ear.deliver, Grouping(first=1, rest=1)))
        ears.append(ear)
        return sequence


def sentence(config: LlmConfig, seed: int) -> tuple[WholeText, int]:
    """One whose ids follow from its seed, and the positions that it may take."""
    ids = [(31 * seed + 7 * at) % config.text_vocabulary for at in range(2 * TEXT_IDS)]
    prompt = Prompt(tuple(ids[:TEXT_IDS]), tuple((17 * seed + 13 * at) % 6561 for at in range(PROMPT_SPEECH)))
    chooser = RepetitionAwareChooser(config.sampling, SeededDraw(seed, 0))
    words = WholeText(prompt, tuple(ids[TEXT_IDS:]), Profile.CONTINUOUS, chooser, lengths=config.lengths)
    return words, positions_of_whole_text(prompt, TEXT_IDS, POSITIONS, config.lengths)


class Speaker:
    """Each way has an engine of its own, made when it is first asked for."""

    def __init__(self) -> None:
        self._model: SpeechTokenModel | None = None
        self._engines: dict[str, Engine] = {}
        self._talk: SentenceLoop | None = None

    def answer(self, question: Answer) -> Answer:
        if question["do"] == "talk":
            self._talk = SentenceLoop(self.engine(question["way"]), question["pace"], question["sentences"])
            self._talk.until_heard()
            return {}
        talk, self._talk = self._talk, None
        return {"ms": talk.hush() if talk else []}

    def engine(self, way: str) -> Engine:
        """Raises what loading raises."""
        if way not in self._engines:
            self._engines[way] = self._new_engine(way)
        return self._engines[way]

    def _new_engine(self, way: str) -> Engine:
        from bench.gpu.llm.random_sentences import random_model
        from services.llm.gpu import runner, tuning

        self._model = self._model or random_model(ends=False)
        priority, blocks = runner.PRIORITY, tuning.TABLE[1]
        runner.PRIORITY = 0 if way == NORMAL else priority
        tuning.TABLE[1] = blocks_of(way)
        try:
            limits = Limits(running=MOST_SENTENCES, waiting=MOST_SENTENCES)
            device = torch.device("cuda")
            return runner.start_engine(
                self._model, limits, device=device, dtype=torch.bfloat16, positions=POSITIONS, on_fault=print
            )
        finally:
            runner.PRIORITY, tuning.TABLE[1] = priority, blocks


def blocks_of(way: str) -> Any:
    """Of a step for one sentence."""
    from services.llm.gpu.tuning import TABLE

    return {EARLY: replace(TABLE[1], pdl=1), SEVERAL: TABLE[2]}.get(way, TABLE[1])


def new_decoding() -> Callable[[Answer], Answer]:
    speaker = Speaker()
    speaker.engine(HIGH)
    return speaker.answer


if __name__ == "__main__":
    serve(new_decoding)
