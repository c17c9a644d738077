"""Sentences for an engine on a GPU whose weights are random and of the published sizes."""

import threading
import time
from dataclasses import dataclass, field

import torch

from bench.generations.random_weights import llm_tensors
from bench.real_size import PUBLISHED_LLM
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.scheduler import Limits
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import Grouping, Hop, Profile, Prompt
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import WholeText
from services.llm.gpu.runner import start_engine

PROMPT_TEXT, PROMPT_SPEECH = 20, 87
TEXT_IDS = 20


@dataclass
class Heard:
    """What one sentence gave, and when."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    error: Exception | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def deliver(self, item: Hop | Exception) -> None:
        if isinstance(item, Exception):
            self.error = item
            self.over.set()
            return
        now = time.perf_counter()
        self.tokens += item.tokens
        self.times += [now] * len(item.tokens)
        if item.outcome:
            self.over.set()


def script(seed: int, text_ids: int = TEXT_IDS, speech: int = PROMPT_SPEECH) -> WholeText:
    """A sentence whose ids follow from its seed."""
    prompt = Prompt(
        tuple((31 * seed + i) % 900 for i in range(PROMPT_TEXT)),
        tuple((17 * seed + 13 * i) % 6561 for i in range(speech)),
    )
    text = tuple((7 * seed + 3 * i) % 900 for i in range(text_ids))
    chooser = RepetitionAwareChooser(PUBLISHED_LLM.sampling, SeededDraw(seed, 0))
    return WholeText(PUBLISHED_LLM, prompt, text, Profile.CONTINUOUS, chooser)


def capacity(text_ids: int = TEXT_IDS, speech: int = PROMPT_SPEECH) -> int:
    return 2 + PROMPT_TEXT + speech + text_ids + PUBLISHED_LLM.lengths.longest(text_ids)


def speak(
    engine: Engine, seeds: range | list[int], text_ids: int = TEXT_IDS, speech: int = PROMPT_SPEECH
) -> list[Heard]:
    """All at once, to the end."""
    heard = [Heard() for _ in seeds]
    for seed, one in zip(seeds, heard, strict=True):
        engine.submit(
            script(seed, text_ids, speech), capacity(text_ids, speech), Outbox(one.deliver, Grouping(first=1, rest=1))
        )
    return ended(heard)


def ended(heard: list[Heard]) -> list[Heard]:
    """Wait for the end of all. Raises the error of a sentence, or TimeoutError."""
    for one in heard:
        if not one.over.wait(120):
            raise TimeoutError("a sentence did not end")
        if one.error:
            raise one.error
    return heard


def engine_of(
    model: SpeechTokenModel, most: int, dtype: torch.dtype, *, invariant: bool = False, one_launch: bool = False
) -> Engine:
    limits = Limits(running=most, waiting=most)
    return start_engine(
        model,
        limits,
        device=model.device,
        dtype=dtype,
        positions=2048,
        invariant=invariant,
        one_launch=one_launch,
        on_fault=print,
    )


def random_model(*, ends: bool) -> SpeechTokenModel:
    device = torch.device("cuda")
    return SpeechTokenModel.build(PUBLISHED_LLM, llm_tensors(PUBLISHED_LLM, device, ends=ends), device)
