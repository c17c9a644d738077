"""A fake of the TensorRT-LLM 1.x interface that we use, with strict signatures. Its logits
processors receive the documented shapes and types, and are pickled where the engine would run in a
process of its own. There the constructor may hang, as the library's does when MPI cannot start that
process.
"""

import asyncio
import enum
import os
import pickle
import threading
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.unit.llm.hosted.step_engine import Logits, Request, StepEngine

LLM_ARGUMENTS = {
    "kv_cache_config", "scheduler_config", "max_batch_size", "max_seq_len", "max_num_tokens", "enable_chunked_prefill",
    "disable_overlap_scheduler",
}  # fmt: skip
"""Of the documented ones those that a server of one GPU may give."""


@dataclass(slots=True, kw_only=True)
class SamplingParams:
    """Fields by the published class, in part."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    logits_processor: Any = None
    top_k: int | None = None
    detokenize: bool = True
    add_special_tokens: bool = True


@dataclass(slots=True, kw_only=True)
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None


CapacitySchedulerPolicy = enum.Enum("CapacitySchedulerPolicy", "MAX_UTILIZATION GUARANTEED_NO_EVICT")


@dataclass(slots=True, kw_only=True)
class SchedulerConfig:
    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT


@dataclass
class Completion:
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    delivered: int = 0

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self.delivered :]


class RequestOutput:
    """What `generate_async` returns: iterated over, it is itself each time."""

    def __init__(self, engine: StepEngine, end_in_output: bool) -> None:
        self.outputs, self.finished = [Completion()], False
        self._engine, self._end_in_output, self._loop = engine, end_in_output, asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[int | Exception, bool]] = asyncio.Queue()
        self.request: Request

    def deliver(self, what: int | Exception, last: bool) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (what, last))

    def __aiter__(self) -> "RequestOutput":
        return self

    async def __anext__(self) -> "RequestOutput":
        if self.finished:
            raise StopAsyncIteration
        what, self.finished = await self._queue.get()
        if isinstance(what, Exception):
            raise RuntimeError(f"RequestError: {what}")
        (completion,) = self.outputs
        completion.delivered = len(completion.token_ids)
        stopped = what in self.request.stops
        if not stopped or self._end_in_output:
            completion.token_ids.append(what)
        if self.finished:
            completion.finish_reason = "stop" if stopped else "length"
        return self

    def abort(self) -> None:
        self._engine.abort(self.request)


class LLM:
    end_in_output = True
    spawn_fails: threading.Event | None = None
    """Set at the end of a test in which a process of its own cannot be started."""
    passes_over: int | None = None
    """Number of a decision that is sampled without the processor, as of a request that comes back.
    """
    passes_to = 0
    """What is drawn there."""

    def __init__(self, model: str, skip_tokenizer_init: bool = False, **arguments: Any) -> None:
        assert skip_tokenizer_init
        assert arguments.keys() <= LLM_ARGUMENTS, arguments
        assert isinstance(arguments["kv_cache_config"], KvCacheConfig)
        self.arguments = arguments
        self.in_process = os.environ.get("TLLM_WORKER_USE_SINGLE_PROCESS") == "1"
        if self.spawn_fails is not None and not self.in_process:
            self.spawn_fails.wait(60)
            raise RuntimeError("the test is over")
        self.engine = StepEngine(Path(model))
        self.vocabulary = self.engine.model.config.vocab_size
        self.shut_down = False

    def generate_async(
        self, inputs: list[int], sampling_params: SamplingParams | None = None, streaming: bool = False
    ) -> RequestOutput:
        assert streaming
        assert sampling_params.end_id is not None  # without a tokenizer the library raises
        assert all(type(one) is int and 0 <= one < self.vocabulary for one in inputs)
        assert sampling_params.max_tokens >= 1
        limit = self.arguments.get("max_seq_len", 1 << 30)
        assert len(inputs) + sampling_params.max_tokens <= limit, "the library refuses what cannot fit"
        processor = sampling_params.logits_processor
        if not self.in_process:
            processor = pickle.loads(pickle.dumps(processor))
        output = RequestOutput(self.engine, self.end_in_output)

        def adjust(row: Logits) -> None:
            if len(output.request.generated) == self.passes_over:
                row[self.passes_to] = 99.0
                return
            assert processor(7, row.view(1, 1, -1), [[*inputs, *output.request.generated]], None, None) is None

        output.request = Request(
            list(inputs), adjust, sampling_params.max_tokens, frozenset([sampling_params.end_id]), output.deliver
        )
        self.engine.submit(output.request)
        return output

    def shutdown(self) -> None:
        self.shut_down = True
        self.engine.close()


def module(version: str = "1.2.0") -> types.ModuleType:
    """What `import tensorrt_llm` gives."""
    module = types.ModuleType("tensorrt_llm")
    llmapi = types.SimpleNamespace(
        KvCacheConfig=KvCacheConfig, SchedulerConfig=SchedulerConfig, CapacitySchedulerPolicy=CapacitySchedulerPolicy
    )
    module.__dict__.update(__version__=version, LLM=LLM, SamplingParams=SamplingParams, llmapi=llmapi)
    return module
