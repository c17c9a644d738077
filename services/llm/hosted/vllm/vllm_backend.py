"""The backend on vLLM: its `AsyncLLM` batches, our logits processor samples
(`services.llm.hosted.vllm.vllm_processor`).

Two conversions are served. `convert --target vllm`: a model of the ids of the head, whose prompts
are embeddings that are looked up here; where the head has a bias, vLLM needs our model for it
(`services.llm.hosted.vllm.vllm_model`).
`convert --target hf`: a Qwen2 with the extended vocabulary, which vLLM supports itself. Only this
module, the model and the processor import the library, and only when they are loaded.

Written against the published sources of 0.11 to 0.33 (`v1/engine/async_llm.py`,
`sampling_params.py`, `v1/sample/logits_processor`); docs/engines.md lists what has been run.
"""

import contextlib
import itertools
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.engines.fallback import EngineUnavailable
from cosyserve.engines.gpu_facts import gpus
from services.llm.backends.backend import Backend
from services.llm.engine.weights import ServedModel
from services.llm.hosted.conversion import HUGGING_FACE, VLLM_EXPORT, Conversion, held_to_load
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary, PromptEmbeddings
from services.llm.hosted.hosted_backend import HostedBackend, hosted_identity
from services.llm.hosted.installed_libraries import VLLM, imported, vllm_refusal
from services.llm.hosted.run_sampler import RunSampler
from services.llm.hosted.runtime import Runtime, load_with_processes, require_whole_run
from services.llm.hosted.vllm.vllm_plugin import plugin_refusal
from services.llm.settings import HOSTED_KV_MIB, LlmSettings

_WORKING_BYTES = 2 << 30
"""Bytes for the CUDA context, the graphs and the buffers of a step: an estimate, not measured."""
_SMALLEST_SHARE, _UNKNOWN_SHARE, _LARGEST_SHARE = 0.01, 0.05, 0.92
PROCESSOR = "services.llm.hosted.vllm.vllm_processor:RunLogitsProcessor"
ARGUMENT = "cosyserve"
"""Key in `SamplingParams.extra_args` of the run for the processor."""


@dataclass(frozen=True)
class PromptFormat:
    """Prompts and ids of a conversion in vLLM. prompt: vLLM's prompt for ids of the extended
    vocabulary. first: vLLM's id of speech token 0. head_bias: file of the head's bias, None where
    the head includes it.
    """

    prompt: Callable[[list[int]], dict[str, Any]]
    first: int
    head_bias: Path | None


class VllmRuntime(Runtime):
    """library: the module. engine: a loaded `AsyncLLM`. processes: as `Runtime.processes`."""

    def __init__(
        self,
        library: Any,
        engine: Any,
        prompt_format: PromptFormat,
        vocabulary: ExtendedVocabulary,
        release: Callable[[], None],
        processes: tuple[int, ...] = (),
    ) -> None:
        super().__init__(engine, release)
        self._library, self._prompt_format, self._vocabulary = library, prompt_format, vocabulary
        self.processes = processes
        self._numbers = itertools.count()

    async def ids(self, inputs: list[int], sampler: RunSampler) -> AsyncGenerator[list[int]]:
        """As `Runtime.ids`. Leaving the library's generator before its end aborts the request."""
        most, received, reason = sampler.most, 0, None
        prompt_format, name = self._prompt_format, f"run-{next(self._numbers)}"
        bias = None if prompt_format.head_bias is None else str(prompt_format.head_bias)
        parameters = self._library.SamplingParams(
            temperature=0.0,
            max_tokens=most,
            stop_token_ids=[prompt_format.first + self._vocabulary.speech.end],
            detokenize=False,
            output_kind=self._library.sampling_params.RequestOutputKind.DELTA,
            extra_args={ARGUMENT: {"name": name, "run": sampler.plain(), "first": prompt_format.first, "bias": bias}},
        )
        outputs = self._engine.generate(prompt_format.prompt(inputs), parameters, name)
        to_extended = self._vocabulary.text_ids - prompt_format.first
        async with contextlib.aclosing(outputs) as results:
            async for output in results:
                completion = output.outputs[0]
                received, reason = received + len(completion.token_ids), completion.finish_reason
                if completion.token_ids:
                    yield [one + to_extended for one in completion.token_ids]
        require_whole_run(reason, received, most)

    def is_dead(self, error: Exception) -> bool:
        return bool(self._engine.errored)


def load_vllm(settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> Backend:
    """Load the engine; blocks. Raises EngineUnavailable with the reason where vLLM cannot serve
    here, and ModelError.
    """
    refusal = vllm_refusal(settings)
    if refusal or settings.converted is None:
        raise EngineUnavailable(refusal)
    # The second model runner has a different interface for logits processors, and none in its
    # first releases.
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
    # gRPC's threads are running: a fork of this process may hang on locks that they hold.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    library, arguments, async_llm = imported(VLLM, "vllm", "vllm.engine.arg_utils", "vllm.v1.engine.async_llm")
    served = ServedModel.read(settings.model)
    conversion = Conversion.open(settings.converted, served.hash, (VLLM_EXPORT, HUGGING_FACE))
    embeds = conversion.kind == VLLM_EXPORT
    vocabulary = conversion.vocabulary
    if embeds and vocabulary.speech.head_bias and (refusal := plugin_refusal()):
        raise EngineUnavailable(refusal)
    if embeds:
        tables = PromptEmbeddings.open(conversion.directory, vocabulary)
        prompt_format = PromptFormat(lambda ids: {"prompt_embeds": tables.rows(ids)}, 0, None)
    else:
        prompt_format = PromptFormat(lambda ids: {"prompt_token_ids": ids}, vocabulary.text_ids, conversion.head_bias)
    release, kv_bytes = str(library.__version__), (settings.kv_budget_mib or HOSTED_KV_MIB) << 20
    with held_to_load(conversion.directory, f"vLLM {release}") as release_directory:
        engine_arguments = arguments.AsyncEngineArgs(
            model=str(conversion.directory),
            skip_tokenizer_init=True,
            enable_prompt_embeds=embeds,
            dtype=conversion.precision,
            max_model_len=settings.max_positions,
            max_num_seqs=settings.max_sequences,
            # Large enough that the prompt of a single sentence is never split.
            max_num_batched_tokens=max(settings.max_positions, 8192),
            # Rounding would depend on earlier requests.
            enable_prefix_caching=False,
            kv_cache_memory_bytes=kv_bytes,
            gpu_memory_utilization=gpu_share(conversion.directory, kv_bytes),
            logits_processors=[PROCESSOR],
            disable_log_stats=True,
        )
        engine, processes = load_with_processes(lambda: async_llm.AsyncLLM.from_engine_args(engine_arguments))
    precision = f"{conversion.precision}{', prompt embeddings' if embeds else ''}"
    identity = hosted_identity(served, VLLM, release, precision, settings)
    runtime = VllmRuntime(library, engine, prompt_format, vocabulary, release_directory, processes)
    return HostedBackend(runtime, vocabulary, served, identity, settings, on_fault)


def gpu_share(directory: Path, kv_bytes: int) -> float:
    """`gpu_memory_utilization`: the share of the GPU's memory that the engine needs, 0.01 to 0.92;
    0.05 where the size of the memory is unknown.

    vLLM refuses to start while less than this share is free, and its default, 0.92, is never free
    on a GPU that token2wav shares. The value has no other effect where kv_cache_memory_bytes is
    set. directory: of the conversion. kv_bytes: for keys and values.
    """
    visible = gpus()
    if not visible or not visible[0].memory_mib:
        return _UNKNOWN_SHARE
    needed = kv_bytes + sum(file.stat().st_size for file in directory.glob("*.safetensors")) + _WORKING_BYTES
    return min(_LARGEST_SHARE, max(_SMALLEST_SHARE, needed / (visible[0].memory_mib << 20)))
