"""The decode step of one row as one launch beside that of a launch for each operation: how far the
logits of both are from the readable model's, whether they repeat, and how long both take.
"""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bench.gpu.llm.decode_steps import (
    LENGTHS,
    SERVED_POSITIONS,
    captured,
    filled,
    graph_of,
    microseconds,
    published_model,
)
from bench.gpu.llm.random_sentences import engine_of, random_model, speak
from cosyserve.engines.kernel_cache import Unsuitable
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.script import Table, speech_inputs
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.layout import CHUNK, PAGE, Stretch
from services.llm.gpu.one_launch import OneLaunchStep
from services.llm.gpu.packing import PackedModel, pack
from services.llm.gpu.prefill import PrefillStep
from services.llm.gpu.slots import Column

LENGTHS_COMPARED = (1, 2, 64, 65, 129, 300, 520, 900)
REPEATS = 100
SENTENCES = 16


@dataclass(frozen=True)
class Case:
    """A row behind so many positions, the last of which a step is about to run."""

    tokens: list[int]
    readable: Tensor
    """Log-probabilities of the readable model in float32, [ids]."""

    @classmethod
    def of(cls, model: SpeechTokenModel, length: int) -> "Case":
        tokens = [(31 * length + 7 * at) % 6561 for at in range(length)]
        cache = SequenceCache.reserve(model.config, length, model.device)
        return cls(tokens, model.log_probabilities(model.forward(model.embed(speech_inputs(tokens)), cache)[-1:])[0])

    def begin(self, packed: PackedModel, memory: Memory, prefill: PrefillStep) -> None:
        """Put all positions but the last into slot 1, on pages in no order; what is not written is
        no number.
        """
        memory.cache.fill_(float("nan"))
        most = memory.pages.shape[1]
        pages = (torch.randperm(most, generator=torch.Generator().manual_seed(len(self.tokens))) + 1).tolist()
        memory.pages[1] = torch.tensor(pages, dtype=torch.int32)
        rows = [packed.starts[Table.SPEECH] + token for token in self.tokens]
        for first in range(0, len(rows) - 1, CHUNK):
            prefill.load([Stretch(1, first, rows[first : min(first + CHUNK, len(rows) - 1)], pages)])
            prefill.launch()
        self.rewind(memory, rows[-1])

    def rewind(self, memory: Memory, row: int) -> None:
        """As before the step."""
        columns = {
            Column.LENGTH: len(self.tokens) - 1, Column.INPUT: row, Column.ACTIVE: 1, Column.DECISIONS: 0,
            Column.TOKENS: 0, Column.LONGEST: 1 << 20, Column.CAPACITY: 1 << 20, Column.FILL_AT: -1,
        }  # fmt: skip
        for column, value in columns.items():
            memory.state[1, column] = value

    def distance(self, logits: Tensor) -> float:
        """Distance of the log-probabilities over the norm of those of the readable model, less
        their mean: a constant changes no choice.
        """
        apart = logits.log_softmax(0) - self.readable
        return float(apart.norm() / (self.readable - self.readable.mean()).norm())


@torch.inference_mode()
def compared(
    model: SpeechTokenModel, lengths: Sequence[int] = LENGTHS_COMPARED, repeats: int = REPEATS
) -> Iterator[dict[str, float]]:
    """For each length the distances of both forms from the readable model, and how often one launch
    gives the same bits and the same id.
    """
    packed = pack(model, torch.bfloat16, SERVED_POSITIONS)
    memory = Memory.reserve(packed, pages=SERVED_POSITIONS // PAGE, slots=1, positions=SERVED_POSITIONS)
    prefill, one = PrefillStep(packed, memory), OneLaunchStep(packed, memory)
    steps: dict[str, DecodeStep | OneLaunchStep] = {"launches": DecodeStep(packed, memory, 1), "one_launch": one}
    for length in lengths:
        case, distances = Case.of(model, length), {}
        for name, step in steps.items():
            step.rows.fill_(1)
            case.begin(packed, memory, prefill)
            step.launch()
            distances[name] = case.distance(step.logits[0])
        logits, decision, equal = one.logits.clone(), int(one.decisions), 0
        for _ in range(repeats):
            case.rewind(memory, packed.starts[Table.SPEECH] + case.tokens[-1])
            one.logits.fill_(float("nan"))
            one.launch()
            equal += torch.equal(one.logits, logits) and int(one.decisions) == decision
        yield {"length": length, **distances, "equal": equal, "of": repeats}


def step_times() -> list[dict[str, float]]:
    """Microseconds of a graph of each form, sampling included."""
    model, rows = published_model(), []
    for length in LENGTHS:
        memory = filled(model, length)
        step = OneLaunchStep(model, memory)
        step.rows.fill_(1)
        graph = graph_of(step.launch)
        memory.state[1:, Column.LENGTH] = length
        one = microseconds(graph)
        rows.append(
            {"length": length, "one_launch_us": one, "launches_us": microseconds(captured(model, 1, length)[1])}
        )
    return rows


def engine_times() -> dict[str, float]:
    """Milliseconds between two tokens of a sentence that speaks alone, by each form."""
    model, times = random_model(ends=False), dict[str, float]()
    for name, one_launch in (("launches", False), ("one_launch", True)):
        engine = engine_of(model, 1, torch.bfloat16, one_launch=one_launch)
        speak(engine, [0])
        heard = [speak(engine, [seed])[0] for seed in range(4)]
        each = [b - a for one in heard for a, b in zip(one.times[150:350], one.times[151:351], strict=True)]
        engine.close()
        times |= {
            f"{name}_ms": 1e3 * statistics.median(each),
            f"{name}_p99_ms": 1e3 * sorted(each)[int(0.99 * len(each))],
        }
    return times


def repeated() -> dict[str, int]:
    """Sentences that speak alone, twice: how many have the same ids, and how many ids there are."""
    model = random_model(ends=True)
    engine = engine_of(model, 1, torch.bfloat16, one_launch=True)
    once, again = ([speak(engine, [seed], 6)[0].tokens for seed in range(SENTENCES)] for _ in range(2))
    engine.close()
    return {
        "equal": sum(a == b for a, b in zip(once, again, strict=True)), "of": SENTENCES, "ids": sum(map(len, once))
    }  # fmt: skip


@contextlib.contextmanager
def reason_instead() -> Iterator[None]:
    """Context in which a step of one launch is made; where it cannot run, the reason is printed."""
    try:
        yield
    except Unsuitable as error:
        print(f"not on this GPU: {error}", flush=True)


def one_launch(_: float, keep: Callable[[Any], None]) -> dict[str, Any]:
    """All of it. keep: is called with what is known after each part."""
    torch.backends.cuda.matmul.allow_tf32 = False
    results: dict[str, Any] = {}
    with reason_instead():
        _measure(results, keep)
    return results


def _measure(results: dict[str, Any], keep: Callable[[Any], None]) -> None:
    results["steps"] = step_times()
    for row in results["steps"]:
        print(
            "behind {length} positions: one launch {one_launch_us:.1f} us, launches {launches_us:.1f} us".format(**row)
        )
    keep(results)
    results["engine"] = engine_times()
    print("a sentence alone: {one_launch_ms:.3f} ms a token (p99 {one_launch_p99_ms:.3f}), by launches "
          "{launches_ms:.3f} ms (p99 {launches_p99_ms:.3f})".format(**results["engine"]), flush=True)  # fmt: skip
    keep(results)
    results["logits"] = []
    for row in compared(random_model(ends=True)):
        results["logits"].append(row)
        print("behind {length} positions: from the readable model one launch {one_launch:.2e}, launches "
              "{launches:.2e}; {equal} of {of} times the same".format(**row), flush=True)  # fmt: skip
        keep(results)
    results["repeated"] = repeated()
    print("sentences alone, twice: {equal} of {of} equal, {ids} ids".format(**results["repeated"]), flush=True)
