"""The process whose passes of the flow are timed: `python -m bench.gpu.sharing.passes`.

Questions: {"way": as in `rows`, "units": 1 or 4, "seconds": how long} -> {"ms": [...]}. The flow is
paged, of the published sizes and with random weights.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from bench.gpu.sharing.rows import AHEAD, APART, COLD
from bench.gpu.sharing.worker import Answer, serve
from bench.gpu.timing import once

GAP_SECONDS = 0.003
"""Between two passes, so that they begin at any place of the other process's steps."""
LEAST = 20
"""Passes, however long they take."""
WARM = 3
PROMPT, BEHIND = 87, 41
"""Tokens of the prompt, and of the sentence as far as its first block looks."""
PAGES = 8
BUCKETS = (1, 2, COLD)


class PagedPasses:
    """Each way has pages and graphs of its own, made when it is first asked for."""

    def __init__(self) -> None:
        from bench.gpu.token2wav.random_models import DEVICE, PUBLISHED, RandomVoice, random_flow

        self._weights = random_flow(PUBLISHED, DEVICE)
        self._units = [RandomVoice(None, PROMPT, BEHIND, 7).unit(at, list(range(1, at + 2))) for at in range(COLD)]
        self._flows: dict[str, Any] = {}
        self._ahead = torch.cuda.Stream(DEVICE, priority=-1)  # type: ignore[no-untyped-call]

    def answer(self, question: Answer) -> Answer:
        way, began = question["way"], time.perf_counter()
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._ahead) if way == AHEAD else nullcontext()
        times: list[float] = []
        with torch.inference_mode(), stream:
            work = self._work(way, question["units"])
            for _ in range(WARM):
                once(work)
            while len(times) < LEAST or time.perf_counter() - began < question["seconds"]:
                times.append(once(work))
                time.sleep(GAP_SECONDS)
        return {"ms": times}

    def _work(self, way: str, units: int) -> Callable[[], Any]:
        """A pass."""
        if way not in self._flows:
            self._flows[way] = self._new_flow(way)
        return partial(self._flows[way].run, self._units[COLD - units :])

    def _new_flow(self, way: str) -> Any:
        from bench.gpu.token2wav.random_models import PUBLISHED
        from services.token2wav.gpu.paged_flow.flow import PagedFlow, Way

        meeting = 0 if way == APART else None
        flow = PagedFlow(PUBLISHED, self._weights, pages=PAGES, buckets=BUCKETS, barrier_units=meeting)
        # A kernel of a graph has the priority of the stream on which it was recorded.
        usual = torch.cuda.graph.default_capture_stream
        torch.cuda.graph.default_capture_stream = self._ahead if way == AHEAD else usual
        try:
            flow.capture((Way.SHORT,))
        finally:
            torch.cuda.graph.default_capture_stream = usual
        flow.run(self._units)  # the pages of a kept prompt are filled
        torch.cuda.synchronize()
        return flow


if __name__ == "__main__":
    serve(lambda: PagedPasses().answer)
