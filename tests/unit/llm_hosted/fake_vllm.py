"""Modules with the signatures of vLLM 0.11 to 0.32 that we use, strict about them. Extra arguments go through json, as they must be plain
to reach the process that runs the model; the logits processor is loaded by its name and follows a batch."""

import asyncio
import enum
import functools
import importlib
import inspect
import json
import types
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.unit.llm_hosted.step_engine import Logits, Request, StepEngine


class RequestOutputKind(enum.Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass(kw_only=True)
class SamplingParams:
    """Fields by the published class, in part."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    detokenize: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    extra_args: dict[str, Any] | None = None


@dataclass(kw_only=True)
class AsyncEngineArgs:
    """Fields by the published class, in part."""

    model: str
    skip_tokenizer_init: bool = False
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    enable_prefix_caching: bool | None = None
    kv_cache_memory_bytes: int | None = None
    logits_processors: list[str] | None = None
    disable_log_stats: bool = False


class AdapterLogitsProcessor:
    """By the published class: a callable a request, called with the output ids as they are, and its row."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.of: dict[int, functools.partial[Logits]] = {}

    def new_req_logits_processor(self, params: SamplingParams) -> Any:
        raise NotImplementedError

    def add(self, index: int, params: SamplingParams, output_ids: list[int]) -> None:
        processor = self.new_req_logits_processor(params)
        if processor is not None:
            assert len(inspect.signature(processor).parameters) == 2
            self.of[index] = functools.partial(processor, output_ids)


@dataclass
class CompletionOutput:
    token_ids: list[int]
    finish_reason: str | None


@dataclass
class RequestOutput:
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False


class AsyncLLM:
    def __init__(self, arguments: AsyncEngineArgs) -> None:
        assert arguments.skip_tokenizer_init
        self.arguments, self.errored, self.shut_down = arguments, False, False
        self.engine = StepEngine(Path(arguments.model))
        self.set_aside_after: int | None = None
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(model=arguments.model))
        self.processors = []
        for name in arguments.logits_processors or []:
            module, kind = name.split(":")
            found = getattr(importlib.import_module(module), kind)
            assert issubclass(found, AdapterLogitsProcessor)
            self.processors.append(found(config, torch.device("cpu"), False))
            assert self.processors[-1].is_argmax_invariant() is False

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> "AsyncLLM":
        return cls(engine_args)

    async def generate(
        self, prompt: dict[str, list[int]], sampling_params: SamplingParams, request_id: str
    ) -> AsyncGenerator[RequestOutput]:
        assert sampling_params.output_kind is RequestOutputKind.DELTA
        assert sampling_params.temperature == 0.0
        assert not sampling_params.detokenize
        assert prompt.keys() == {"prompt_token_ids"}
        if self.errored:
            raise RuntimeError("EngineDeadError")
        sampling_params.extra_args = json.loads(json.dumps(sampling_params.extra_args))
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[int | Exception, bool]] = asyncio.Queue()
        index = id(queue)

        def adjust(row: Logits) -> Logits:
            if len(request.made) == self.set_aside_after:  # comes back as a request that has made something
                for processor in self.processors:
                    processor.add(index, sampling_params, request.made)
            for processor in self.processors:
                row = processor.of[index](row)
            return row

        def tell(what: int | Exception, last: bool) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, (what, last))

        stops = frozenset(sampling_params.stop_token_ids or [])
        request = Request(prompt["prompt_token_ids"], adjust, sampling_params.max_tokens or 16, stops, tell)
        for processor in self.processors:
            processor.add(index, sampling_params, request.made)
        self.engine.submit(request)
        last = False
        try:
            while not last:
                what, last = await queue.get()
                if isinstance(what, Exception):
                    raise RuntimeError(f"EngineGenerateError: {what}")
                reason = ("stop" if what in stops else "length") if last else None
                yield RequestOutput([CompletionOutput([what], reason)], last)
        finally:
            if not last:
                self.engine.abort(request)

    def shutdown(self, timeout: float | None = None) -> None:
        self.shut_down = True
        self.engine.close()


def modules(version: str = "0.19.0") -> dict[str, types.ModuleType]:
    """What goes into sys.modules."""
    contents = {
        "vllm": {"__version__": version, "SamplingParams": SamplingParams},
        "vllm.sampling_params": {"RequestOutputKind": RequestOutputKind, "SamplingParams": SamplingParams},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": AsyncEngineArgs},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
        "vllm.v1.sample": {},
        "vllm.v1.sample.logits_processor": {"AdapterLogitsProcessor": AdapterLogitsProcessor},
    }
    made = {name: types.ModuleType(name) for name in contents}
    for name, inside in contents.items():
        made[name].__dict__.update(inside)
        made[name].__path__ = []  # type: ignore[attr-defined]
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, made[name])
    return made
