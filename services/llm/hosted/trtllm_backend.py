"""The backend on TensorRT-LLM: its `LLM` batches in flight, our logits processor samples.

Two kinds of directory are served: the output of `cosyserve model convert --target hf`, by the
PyTorch backend of releases 1.x, and an engine of `cosyserve model build llm`, by the releases that
have an engine runtime (0.20 to 1.2). Only this module imports the library, and only when it is
loaded.

Written against its published sources (`llmapi/llm.py`, `sampling_params.py`, `executor/result.py`);
docs/engines.md lists what has been run.
"""

import contextlib
import os
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cosyserve.engines.engine_cache import Engine, EngineCache, default_directory
from cosyserve.engines.fallback import EngineUnavailable
from cosyserve.engines.gpu_facts import library_versions, visible_gpus
from services.llm.backends.backend import Backend
from services.llm.engine.weights import ServedModel
from services.llm.generation.config import LlmConfig
from services.llm.hosted.conversion import HUGGING_FACE, Conversion, held_to_load, side_files
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary
from services.llm.hosted.hosted_backend import HostedBackend, hosted_identity
from services.llm.hosted.installed_libraries import TENSORRT_LLM, imported, tensorrt_llm_refusal
from services.llm.hosted.run_sampler import RunSampler, force_token
from services.llm.hosted.runtime import Runtime, require_whole_run
from services.llm.settings import HOSTED_KV_MIB, LlmSettings

SINGLE_PROCESS = "TLLM_WORKER_USE_SINGLE_PROCESS"
"""Variable of TensorRT-LLM: 1 runs the engine of one GPU in the calling process, any other value in
a process that MPI starts.
"""


@dataclass
class RunLogitsProcessor:
    """The logits processor of one run: TensorRT-LLM calls it with the logits of each step and
    samples the only id that it leaves.

    Where the engine runs in a process of its own (`SINGLE_PROCESS`) the processor is sent there by
    pickle. It counts its own decisions, since the token ids that it receives can be out of date
    where steps overlap.
    """

    sampler: RunSampler
    bias: Path | None
    text_ids: int
    inputs: int
    """Number of ids with which the run began; `token_ids` begins with them."""
    _decided: int = field(default=0, init=False)

    def __call__(
        self,
        req_id: int,
        logits: torch.Tensor,
        token_ids: list[list[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None:
        """logits: [1, 1, rows], changed in place, on the stream if there is one."""
        external = torch.cuda.stream(torch.cuda.ExternalStream(stream_ptr)) if stream_ptr else contextlib.nullcontext()  # type: ignore[no-untyped-call]
        # A preempted request is restarted without its processor (`_torch/pyexecutor`, 1.x); then
        # there are more ids than decisions.
        if len(token_ids[0]) - self.inputs > self._decided:
            self.sampler.bypassed()
        self._decided += 1
        with external:
            force_token(logits, self.sampler, self.bias, self.text_ids)


class TensorRtLlmRuntime(Runtime):
    """library: the module. engine: its loaded `LLM`.

    It names no processes: the engine runs in this one, and a process that MPI has started instead
    cannot be watched from here. It is never dead, since the library reports only failed requests.
    """

    def __init__(
        self, library: Any, engine: Any, vocabulary: ExtendedVocabulary, bias: Path | None, release: Callable[[], None]
    ) -> None:
        super().__init__(engine, release)
        self._library, self._vocabulary, self._bias = library, vocabulary, bias

    async def ids(self, inputs: list[int], sampler: RunSampler) -> AsyncGenerator[list[int]]:
        most, received = sampler.most, 0
        parameters = self._library.SamplingParams(
            end_id=self._vocabulary.end,
            pad_id=self._vocabulary.end,
            max_tokens=most,
            top_k=1,
            detokenize=False,
            add_special_tokens=False,
            logits_processor=RunLogitsProcessor(sampler, self._bias, self._vocabulary.text_ids, len(inputs)),
        )
        output = self._engine.generate_async(inputs, sampling_params=parameters, streaming=True)
        try:
            async for result in output:
                new = list(result.outputs[0].token_ids_diff)
                received += len(new)
                if new:
                    yield new
                if result.finished:
                    break
            require_whole_run(output.outputs[0].finish_reason, received, most)
        finally:
            if not output.finished:
                output.abort()


def load_trtllm(settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> Backend:
    """Load the engine; blocks. Raises EngineUnavailable with the reason where TensorRT-LLM cannot
    serve here, and ModelError.
    """
    if refusal := tensorrt_llm_refusal(settings):
        raise EngineUnavailable(refusal)
    # MPI_Comm_spawn fails in a container without privileges, in a pod and with some releases of
    # Open MPI; the error ends a thread of mpi4py and the constructor hangs. The library reads the
    # variable when it is imported.
    os.environ.setdefault(SINGLE_PROCESS, "1")
    (library,) = imported(TENSORRT_LLM, "tensorrt_llm")
    served = ServedModel.read(settings.model)
    release = str(library.__version__)
    if settings.converted is not None:
        conversion = Conversion.open(settings.converted, served.hash, (HUGGING_FACE,))
        precision, directory = f"{conversion.precision}, PyTorch backend", conversion.directory
        vocabulary, bias, loaded = conversion.vocabulary, conversion.head_bias, library.LLM
    else:
        engine = built_engine(settings, served.hash)
        precision, directory = f"{engine.key.facts['precision']}, TensorRT engine", engine.directory
        vocabulary, bias = side_files(engine.directory)
        loaded = (
            library.LLM if release.startswith("0.") else imported(TENSORRT_LLM, "tensorrt_llm._tensorrt_engine")[0].LLM
        )
    with held_to_load(directory, f"TensorRT-LLM {release}") as release_directory:
        llm = loaded(model=str(directory), skip_tokenizer_init=True, **_arguments(library, settings, served.config))
    identity = hosted_identity(served, TENSORRT_LLM, release, precision, settings)
    runtime = TensorRtLlmRuntime(library, llm, vocabulary, bias, release_directory)
    return HostedBackend(runtime, vocabulary, served, identity, settings, on_fault)


def _arguments(library: Any, settings: LlmSettings, config: LlmConfig) -> dict[str, Any]:
    """Arguments of `LLM`. Prefixes are not shared between sentences, since rounding would then
    depend on earlier requests.
    """
    api, budget = library.llmapi, (settings.kv_budget_mib or HOSTED_KV_MIB) << 20
    position_bytes = 2 * 2 * config.layers * config.kv_width  # keys and values of two bytes each
    cache = api.KvCacheConfig(enable_block_reuse=False, max_tokens=budget // position_bytes)
    if settings.converted is None:  # the engine was built with its limits
        return {"kv_cache_config": cache}
    return {
        "kv_cache_config": cache,
        "max_batch_size": settings.max_sequences,
        "max_seq_len": settings.max_positions,
        "max_num_tokens": max(settings.max_positions, 8192),
        # No request is preempted when memory runs out: a request that is resumed has one step
        # without its logits processor.
        "scheduler_config": api.SchedulerConfig(
            capacity_scheduler_policy=api.CapacitySchedulerPolicy.GUARANTEED_NO_EVICT
        ),
        # The processor would be called for each chunk of a prompt, and with overlapping steps once
        # after the end.
        "enable_chunked_prefill": False,
        "disable_overlap_scheduler": True,
    }


def built_engine(settings: LlmSettings, model_hash: str) -> Engine:
    """The engine in the cache that was built for this model and machine. Raises EngineUnavailable
    with the differences.
    """
    cache = EngineCache(settings.engines or default_directory())
    gpus = visible_gpus()
    facts = (gpus[0] if gpus else {}) | library_versions("tensorrt_llm", "tensorrt") | {"model": model_hash}
    refused = []
    for engine in cache.entries():
        if engine.key.component != "llm.engine":
            continue
        built = engine.key.facts
        differences = [
            f"{name} is {value}, it was built for {built.get(name)}"
            for name, value in facts.items()
            if built.get(name) != value
        ]
        differences += _too_small(built.get("profile", ""), settings)
        if not differences:
            entry = cache.find(engine.key)
            if isinstance(entry, Engine):
                return entry
            differences = [entry.reason if entry else "it is gone"]
        refused.append(f"{engine.directory.name}: {'; '.join(differences)}")
    raise EngineUnavailable("; ".join(refused) or "no engine is built for it and COSYSERVE_LLM_CONVERTED is not set")


def _too_small(profile: str, settings: LlmSettings) -> list[str]:
    """The settings that exceed the limits that an engine was built with, such as "sentences 64,
    positions 8192".
    """
    limits = {name: int(most) for name, most in re.findall(r"(\w+) (\d+)", profile)}
    asked = {
        "sentences": ("MAX_SEQUENCES", settings.max_sequences),
        "positions": ("MAX_POSITIONS", settings.max_positions),
    }
    return [
        f"COSYSERVE_LLM_{variable} is {wanted}, it was built for {limits[name]}"
        for name, (variable, wanted) in asked.items()
        if wanted > limits.get(name, wanted)
    ]
