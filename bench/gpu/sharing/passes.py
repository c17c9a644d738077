"""The process whose passes of the flow are timed: `python -m bench.gpu.sharing.passes DEVICE
MODEL`.

Questions: {"way": as in `rows`, "units": 1 or 4, "seconds": how long} -> {"ms": [...]}. On cuda a
paged flow of the published sizes with random weights, MODEL is not read; on cpu the readable flow
of MODEL, which has one way.
"""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from bench.gpu.sharing.rows import AHEAD, APART, COLD
from bench.gpu.sharing.worker import Answer, serve
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.token2wav.flow.flow import VoicePrompt, load_flow

GAP_SECONDS = 0.003
"""Between two passes, so that they begin at any place of the other process's steps."""
LEAST = 20
"""Passes, however long they take."""
WARM = 3
PROMPT, BEHIND = 87, 41
"""Tokens of the prompt, and of the sentence as far as its first block looks."""
PAGES = 8


class Passes(Protocol):
    def work(self, way: str, units: int) -> Callable[[], Any]:
        """A pass."""
        ...

    def once(self, work: Callable[[], Any]) -> float:
        """Milliseconds of one."""
        ...

    def on(self, way: str) -> AbstractContextManager[Any]:
        """Inside, passes are queued where they belong."""
        ...


def answer(passes: Passes, question: Answer) -> Answer:
    way, began = question["way"], time.perf_counter()
    times: list[float] = []
    with torch.inference_mode(), passes.on(way):
        work = passes.work(way, question["units"])
        for _ in range(WARM):
            passes.once(work)
        while len(times) < LEAST or time.perf_counter() - began < question["seconds"]:
            times.append(passes.once(work))
            time.sleep(GAP_SECONDS)
    return {"ms": times}


class PagedPasses:
    """Each way has pages and graphs of its own, made when it is asked for."""

    def __init__(self) -> None:
        from bench.gpu.token2wav.random_models import DEVICE, PUBLISHED, RandomVoice, random_flow

        self._weights = random_flow(PUBLISHED, DEVICE)
        self._units = [RandomVoice(None, PROMPT, BEHIND, 7).unit(at, list(range(1, at + 2))) for at in range(COLD)]
        self._flows: dict[str, Any] = {}
        self._ahead = torch.cuda.Stream(DEVICE, priority=-1)  # type: ignore[no-untyped-call]

    def on(self, way: str) -> AbstractContextManager[Any]:
        inside: AbstractContextManager[Any] = torch.cuda.stream(self._ahead) if way == AHEAD else nullcontext()
        return inside

    def work(self, way: str, units: int) -> Callable[[], Any]:
        if way not in self._flows:
            self._flows[way] = self._new_flow(way)
        return partial(self._flows[way].run, self._units[COLD - units :])

    def once(self, work: Callable[[], Any]) -> float:
        """Between two events, as the service takes it: what the host adds while the device waits is
        in it.
        """
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    def _new_flow(self, way: str) -> Any:
        from bench.gpu.token2wav.random_models import PUBLISHED
        from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way

        meeting = 0 if way == APART else None
        flow = PagedFlow(PUBLISHED, self._weights, pages=PAGES, buckets=(1, 2, COLD), barrier_units=meeting)
        # A kernel of a graph has the priority of the stream on which it was recorded.
        usual = torch.cuda.graph.default_capture_stream
        torch.cuda.graph.default_capture_stream = self._ahead if way == AHEAD else usual
        try:
            flow.capture((Way.SHORT,))
        finally:
            torch.cuda.graph.default_capture_stream = usual
        flow.run(self._units)  # pages behind the last block hold what they would
        torch.cuda.synchronize()
        return flow


class ReadablePasses:
    """On the CPU."""

    def __init__(self, model: Path) -> None:
        torch.set_num_threads(1)
        self._flow = load_flow(ModelDirectory(model), torch.device("cpu"))
        generator = torch.Generator().manual_seed(7)
        draw = partial(torch.randint, 0, 6561, generator=generator)
        tokens, mel = draw((PROMPT,)), torch.randn(2 * PROMPT, 80, generator=generator)
        self._voice = VoicePrompt(tokens, mel, torch.randn(192, generator=generator))
        self._ids = torch.cat((tokens, draw((BEHIND,))))
        self._prompt_state = self._flow.start(self._voice)
        self._blocks(self._prompt_state, range(COLD - 1))

    def on(self, way: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def work(self, way: str, units: int) -> Callable[[], Any]:
        first = COLD - units
        return lambda: self._blocks(
            self._flow.fork(self._prompt_state) if first else self._flow.start(self._voice), range(first, COLD)
        )

    def once(self, work: Callable[[], Any]) -> float:
        began = time.perf_counter()
        work()
        return 1000 * (time.perf_counter() - began)

    def _blocks(self, state: Any, blocks: range) -> None:
        for at in blocks:
            end = CHUNK_TOKENS * (at + 1)
            self._flow.blocks([state], [self._ids[end - CHUNK_TOKENS : end]], [self._ids[end : end + LOOKAHEAD_TOKENS]])


def passes_on(device: str, model: Path) -> Passes:
    return PagedPasses() if device == "cuda" else ReadablePasses(model)


if __name__ == "__main__":
    serve(lambda: partial(answer, passes_on(sys.argv[1], Path(sys.argv[2]))))
