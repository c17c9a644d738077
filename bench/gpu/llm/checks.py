"""What has to hold for the speech-token engine on a GPU: fused steps give the tokens of the
readable path, and many sentences at once the tokens of each alone.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from bench.gpu.llm.random_sentences import Heard, capacity, ended, engine_of, random_model, script, speak
from bench.real_size import PUBLISHED_LLM
from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.errors import NonFinite
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.stepper import Alone
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import Grouping, Profile, Prompt
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import Table, WholeText

POISONED = 950
"""A text id whose embedding is set to NaN."""
KINDS = {
    "float32": {},
    "bfloat16": {},
    "bfloat16, invariant": {"invariant": True},
    "bfloat16, one launch": {"one_launch": True},
}
"""Number type, and options of `engine_of`."""


def arriving(seed: int, replay: tuple[int, ...] = ()) -> ContinuousText:
    """A sentence whose text arrives in pieces, see `pieces`."""
    prompt = Prompt(
        tuple((31 * seed + i) % 900 for i in range(12)), tuple((17 * seed + 13 * i) % 6561 for i in range(30))
    )
    return ContinuousText(
        PUBLISHED_LLM, prompt, RepetitionAwareChooser(PUBLISHED_LLM.sampling, SeededDraw(seed, 0)), replay
    )


def pieces(seed: int) -> list[list[int]]:
    return [[(7 * seed + 3 * i + j) % 900 for j in range(3)] for i in range(5)]


def speak_arriving(engine: Engine, seeds: list[int], replays: dict[int, tuple[int, ...]] | None = None) -> list[Heard]:
    """All at once, a piece of each text after the other."""
    heard = [Heard() for _ in seeds]
    sequences = [
        engine.submit(
            arriving(seed, (replays or {}).get(seed, ())), 1024, Outbox(one.deliver, Grouping(first=1, rest=1))
        )
        for seed, one in zip(seeds, heard, strict=True)
    ]
    for number in range(5):
        for seed, sequence in zip(seeds, sequences, strict=True):
            engine.feed(sequence, pieces(seed)[number])
        time.sleep(0.01)
    for sequence in sequences:
        engine.feed(sequence, None)
    return ended(heard)


def alone_arriving(model: SpeechTokenModel, seed: int) -> list[int]:
    program = arriving(seed)
    for piece in pieces(seed):
        program.feed(piece)
    program.end()
    return Alone(model, program, 1024).run()


def poisoned() -> WholeText:
    """A sentence whose embedding is NaN."""
    chooser = RepetitionAwareChooser(PUBLISHED_LLM.sampling, SeededDraw(1, 0))
    return WholeText(PUBLISHED_LLM, Prompt((), ()), (POISONED,) * 3, Profile.CONTINUOUS, chooser)


def guards(engine: Engine, name: str) -> dict[str, int]:
    """A sentence whose embedding is NaN fails, with its reason; the others are unaffected."""
    good = [one.tokens for one in speak(engine, [3, 4], 6)]
    heard = first, failed, last = Heard(), Heard(), Heard()
    for program, one in zip((script(3, 6), poisoned(), script(4, 6)), heard, strict=True):
        engine.submit(program, 400, Outbox(one.deliver, Grouping(first=1, rest=1)))
    others = [one.tokens for one in ended([first, last])]
    if not failed.over.wait(60) or not isinstance(failed.error, NonFinite):
        raise RuntimeError(f"a sentence whose embedding is NaN ended with {failed.error!r}")
    return compared(name, "next to a poisoned sentence, which failed, against without it", others, good)


def same(keep: Callable[[Any], None]) -> dict[str, Any]:
    """Tokens against the readable path, against the sentence alone, and once more; text that
    arrives, and taken over half way. keep: is called with what is known after each kind.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    model = random_model(ends=True)
    seeds = list(range(32))
    with torch.inference_mode():
        slow = [Alone(model, script(seed, 6), capacity(6)).run() for seed in seeds]
        slow_arriving = [alone_arriving(model, seed) for seed in seeds[:8]]
    model.tables[Table.TEXT][POISONED] = float("nan")
    results: dict[str, Any] = {}
    for kind, options in KINDS.items():
        try:
            engine = engine_of(model, 32, getattr(torch, kind.split(",")[0]), **options)
        except Unsuitable as error:
            print(f"{kind}: not on this GPU: {error}")
            continue
        together = [one.tokens for one in speak(engine, seeds, 6)]
        alone = [speak(engine, [seed], 6)[0].tokens for seed in seeds]
        again = [one.tokens for one in speak(engine, seeds, 6)]
        streamed = [one.tokens for one in speak_arriving(engine, seeds[:8])]
        halves = {seed: tuple(tokens[: len(tokens) // 2]) for seed, tokens in zip(seeds, streamed, strict=False)}
        rest = speak_arriving(engine, seeds[:8], halves)
        taken_over = [[*halves[seed], *one.tokens] for seed, one in zip(seeds, rest, strict=False)]
        next_to_poisoned = guards(engine, kind)
        engine.close()
        results[kind] = {
            "against the readable path": compared(kind, "32 together against the readable path", together, slow),
            "against alone": compared(kind, "32 together against each alone", together, alone),
            "again": compared(kind, "32 together, again", together, again),
            "arriving against the readable path": compared(
                kind, "text that arrives against the readable path", streamed, slow_arriving
            ),
            "taken over": compared(kind, "taken over half way against uninterrupted", taken_over, streamed),
            "next to a poisoned sentence": next_to_poisoned,
        }
        keep(results)
    return results


def compared(name: str, what: str, left: list[list[int]], right: list[list[int]]) -> dict[str, int]:
    """How many sentences are equal, and how many tokens were made up to the first that is not."""
    pairs = list(zip(left, right, strict=True))
    equal = sum(a == b for a, b in pairs)
    agreed = sum(
        next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))) for a, b in pairs
    )
    print(
        f"{name}, {what}: {equal} of {len(pairs)} sentences equal, {len(pairs) - equal} partings in {agreed} tokens",
        flush=True,
    )
    return {"equal": equal, "of": len(pairs), "agreed_tokens": agreed}
