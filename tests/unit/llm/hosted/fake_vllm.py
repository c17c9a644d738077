"""A fake of the interface of vLLM 0.11 to 0.33 that we use, with strict signatures. Extra arguments
are converted to json and back, as they must be plain data to reach the process that runs the model;
the logits processor and a registered model are loaded by name.
"""

import asyncio
import enum
import functools
import inspect
import json
import multiprocessing
import pkgutil
import time
import types
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from services.llm.hosted.vllm import vllm_plugin
from tests.unit.llm.hosted.step_engine import Logits, Request, StepEngine

RequestOutputKind = enum.Enum("RequestOutputKind", "CUMULATIVE DELTA", start=0)


@dataclass(kw_only=True)
class SamplingParams:
    """Fields by the published class, in part."""

    temperature: float = 1.0
    stop_token_ids: list[int] | None = None
    max_tokens: int | None = 16
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
    max_num_batched_tokens: int | None = None
    enable_prompt_embeds: bool = False
    enable_prefix_caching: bool | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92
    logits_processors: list[str] | None = None
    disable_log_stats: bool = False


@dataclass
class Memory:
    """Of the GPU, in bytes. The library compares the free part with the share that it is given
    before it loads, whatever kv_cache_memory_bytes says (`v1/worker/utils.py`, request_memory)."""

    total: int = 24 << 30
    free: int = 24 << 30

    def request(self, arguments: AsyncEngineArgs) -> None:
        if self.free < self.total * arguments.gpu_memory_utilization:
            raise ValueError("Free memory on device cuda:0 on startup is less than desired GPU memory utilization")


memory = Memory()


class AdapterLogitsProcessor:
    """By the published class: a callable a request, called with the output ids as they are, and its
    row.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.of: dict[int, functools.partial[Logits]] = {}

    def add(self, index: int, params: SamplingParams, output_ids: list[int]) -> None:
        processor = self.new_req_logits_processor(params)
        if processor is not None:
            assert len(inspect.signature(processor).parameters) == 2
            self.of[index] = functools.partial(processor, output_ids)


class ParallelLMHead(nn.Module):
    """Rows are padded to a multiple of 64, as the library's are."""

    def __init__(
        self, rows: int, width: int, bias: bool = False, *, quant_config: Any = None, prefix: str = ""
    ) -> None:
        super().__init__()
        padded = -(-rows // 64) * 64
        self.weight = nn.Parameter(torch.zeros(padded, width))
        self.bias = nn.Parameter(torch.zeros(padded)) if bias else None
        self.prefix = prefix


class Qwen2ForCausalLM(nn.Module):
    """Its head; the rest is the step engine's."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        assert not config.tie_word_embeddings
        self.rows = config.vocab_size
        self.lm_head = ParallelLMHead(config.vocab_size, config.hidden_size)

    def logits_processor(
        self, lm_head: ParallelLMHead, hidden_states: torch.Tensor, embedding_bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return nn.functional.linear(hidden_states, lm_head.weight, embedding_bias)[:, : self.rows]

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        """As the library: a name that the model has no place for is an error, one that it lacks
        too.
        """
        places = {f"lm_head.{name}": place for name, place in self.lm_head.named_parameters()}
        assert {name for name in weights if name.startswith("lm_head.")} == places.keys()
        for name, place in places.items():
            place.data[: len(weights[name])] = weights[name]


class ModelRegistry:
    models: dict[str, str] = {}  # noqa: RUF012 - as the library's, for the process

    @classmethod
    def register_model(cls, architecture: str, model: str) -> None:
        cls.models[architecture] = model


class AsyncLLM:
    with_core = False

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        assert arguments.skip_tokenizer_init
        self.arguments, self.errored, self.shut_down = arguments, False, False
        memory.request(arguments)
        self.engine = StepEngine(Path(arguments.model))
        self.core = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(3600,), daemon=True)
        """What the library runs the model in; here it only has to be alive."""
        if self.with_core:
            self.core.start()
        self.set_aside_after = self.left_out_after = None
        """So many ids are made when the request is left out of a step and comes back, the latter
        with the last of them still open.
        """
        hf_config = self.engine.model.config
        config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(model=arguments.model, hf_config=hf_config),
            scheduler_config=types.SimpleNamespace(max_num_seqs=arguments.max_num_seqs),
            quant_config=None,
        )
        assert arguments.max_num_batched_tokens >= arguments.max_model_len
        vllm_plugin.register()
        (architecture,) = hf_config.architectures
        if architecture != "Qwen2ForCausalLM":
            model = pkgutil.resolve_name(ModelRegistry.models[architecture])(vllm_config=config)
            model.load(load_file(Path(arguments.model) / "model.safetensors"))
            self.engine.logits = model.compute_logits
        self.processors = []
        for name in arguments.logits_processors or []:
            processor_class = pkgutil.resolve_name(name)
            assert issubclass(processor_class, AdapterLogitsProcessor)
            self.processors.append(processor_class(config, torch.device("cpu"), False))
            assert self.processors[-1].is_argmax_invariant() is False

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> "AsyncLLM":
        return cls(engine_args)

    async def generate(
        self, prompt: dict[str, Any], sampling_params: SamplingParams, request_id: str
    ) -> AsyncGenerator[types.SimpleNamespace]:
        how = (sampling_params.output_kind, sampling_params.temperature, sampling_params.detokenize)
        assert how == (RequestOutputKind.DELTA, 0.0, False)
        ((given, inputs),) = prompt.items()
        if given == "prompt_embeds":
            assert self.arguments.enable_prompt_embeds
            assert (inputs.ndim, inputs.dtype, inputs.is_contiguous()) == (2, torch.float32, True)
        else:
            assert given == "prompt_token_ids"
            assert all(type(one) is int and 0 <= one < self.engine.model.config.vocab_size for one in inputs)
        if self.errored:
            raise RuntimeError("EngineDeadError")
        sampling_params.extra_args = json.loads(json.dumps(sampling_params.extra_args))
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[int | Exception, bool]] = asyncio.Queue()
        index = id(queue)

        def adjust(row: Logits) -> Logits:
            count = len(request.generated)
            if self.left_out_after in (count, count - 1) or count == self.set_aside_after:
                open_ids = [*request.generated[:-1], -1] if count == self.left_out_after else request.generated
                for processor in self.processors:
                    processor.add(index, sampling_params, open_ids)
            for processor in self.processors:
                row = processor.of[index](row)
            return row

        def deliver(what: int | Exception, last: bool) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, (what, last))

        stops = frozenset(sampling_params.stop_token_ids or [])
        request = Request(inputs, adjust, sampling_params.max_tokens or 16, stops, deliver)
        for processor in self.processors:
            processor.add(index, sampling_params, request.generated)
        self.engine.submit(request)
        last = False
        try:
            while not last:
                what, last = await queue.get()
                if isinstance(what, Exception):
                    raise RuntimeError(f"EngineGenerateError: {what}")
                reason = ("stop" if what in stops else "length") if last else None
                completion = types.SimpleNamespace(token_ids=[what], finish_reason=reason)
                yield types.SimpleNamespace(outputs=[completion], finished=last)
        finally:
            if not last:
                self.engine.abort(request)

    def shutdown(self, timeout: float | None = None) -> None:
        self.shut_down = True
        if self.with_core:
            self.core.kill()
            self.core.join()
            self.core.close()
        self.engine.close()


def modules(version: str = "0.19.0") -> dict[str, types.ModuleType]:
    """What goes into sys.modules."""
    contents = {
        "vllm": {"__version__": version, "SamplingParams": SamplingParams, "ModelRegistry": ModelRegistry},
        "vllm.sampling_params": {"RequestOutputKind": RequestOutputKind, "SamplingParams": SamplingParams},
        **{f"vllm.{name}": {} for name in ("engine", "v1", "v1.engine", "v1.sample", "model_executor")},
        **{f"vllm.model_executor.{name}": {} for name in ("layers", "models")},
        "vllm.model_executor.layers.vocab_parallel_embedding": {"ParallelLMHead": ParallelLMHead},
        "vllm.model_executor.models.qwen2": {"Qwen2ForCausalLM": Qwen2ForCausalLM},
        "vllm.model_executor.models.utils": {
            "maybe_prefix": lambda prefix, name: f"{prefix}.{name}" if prefix else name
        },
        "vllm.engine.arg_utils": {"AsyncEngineArgs": AsyncEngineArgs},
        "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
        "vllm.v1.sample.logits_processor": {"AdapterLogitsProcessor": AdapterLogitsProcessor},
    }
    modules_by_name = {name: types.ModuleType(name) for name in contents}
    for name, inside in contents.items():
        modules_by_name[name].__dict__.update(inside)
        modules_by_name[name].__path__ = []  # type: ignore[attr-defined]
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules_by_name[parent], last, modules_by_name[name])
    return modules_by_name
