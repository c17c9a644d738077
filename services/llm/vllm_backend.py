"""The backend on vLLM: its `AsyncLLM` batches, decisions of ours in a logits processor (`services.llm.vllm_processor`).

Serves what `cosyserve model convert --target hf` makes: a Qwen2 with the extended vocabulary, which vLLM knows as it is. This module and
the processor alone import the library, late.

Written against the published sources of 0.11 to 0.32 (`v1/engine/async_llm.py`, `sampling_params.py`, `v1/sample/logits_processor`);
docs/engines.md says what has run.
"""

import contextlib
import importlib
import itertools
import os
from collections.abc import AsyncGenerator, Callable
from typing import Any

from cosyserve.engine_use import engine_held
from cosyserve.errors import ModelError
from cosyserve.identity import Identity
from cosyserve.ladder import Unserved
from services.llm.backend import Backend
from services.llm.conversion import Conversion
from services.llm.extended_vocabulary import ExtendedVocabulary
from services.llm.hosted_backend import HostedBackend
from services.llm.rungs import VLLM, vllm_refusal
from services.llm.runtime import Run
from services.llm.served_model import ServedModel
from services.llm.settings import HOSTED_KV_MIB, LlmSettings

PROCESSOR = "services.llm.vllm_processor:SeededChoices"
ARGUMENT = "cosyserve"
"""Key in `SamplingParams.extra_args` under which the processor finds its run."""


class Vllm:
    """A `Runtime`. library: the module. engine: a loaded `AsyncLLM`."""

    def __init__(self, library: Any, engine: Any, vocabulary: ExtendedVocabulary, release: Callable[[], None]) -> None:
        self._library, self._engine, self._vocabulary, self._release = library, engine, vocabulary, release
        self._numbers = itertools.count()

    async def ids(self, run: Run) -> AsyncGenerator[list[int]]:
        """As `Runtime.ids`. Leaving the library's generator before its end aborts the request."""
        most, made, reason = run.most, 0, None
        parameters = self._library.SamplingParams(
            temperature=0.0,
            max_tokens=most,
            stop_token_ids=[self._vocabulary.end],
            detokenize=False,
            output_kind=self._library.sampling_params.RequestOutputKind.DELTA,
            extra_args={ARGUMENT: {"run": run.decider.plain(), "text_ids": self._vocabulary.text_ids}},
        )
        outputs = self._engine.generate({"prompt_token_ids": run.inputs}, parameters, f"run-{next(self._numbers)}")
        async with contextlib.aclosing(outputs) as told:
            async for output in told:
                completion = output.outputs[0]
                made, reason = made + len(completion.token_ids), completion.finish_reason
                if completion.token_ids:
                    yield list(completion.token_ids)
        if reason not in ("stop", "length") or (reason == "length" and made < most):
            raise RuntimeError(f"the run ended by {reason} after {made} of {most} ids")

    def is_dead(self, error: Exception) -> bool:
        """As `Runtime.is_dead`."""
        return bool(self._engine.errored)

    def close(self) -> None:
        """As `Runtime.close`."""
        self._engine.shutdown()
        self._release()


def load_vllm(settings: LlmSettings, on_fault: Callable[[str], None] | None = None) -> Backend:
    """Blocks while the engine is loaded. Raises Unserved with the reason where vLLM cannot serve here, ModelError."""
    refusal = vllm_refusal(settings)
    if refusal or settings.converted is None:
        raise Unserved(refusal)
    # The second model runner has another interface for logits processors, and none in the releases before it got one.
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
    library = importlib.import_module("vllm")
    arguments = importlib.import_module("vllm.engine.arg_utils")
    async_llm = importlib.import_module("vllm.v1.engine.async_llm")
    served = ServedModel.read(settings)
    conversion = Conversion.open(settings.converted, served.model_hash, ("llm-hf",))
    held = contextlib.ExitStack()
    held.enter_context(engine_held(conversion.directory))
    release = str(library.__version__)
    try:
        engine = async_llm.AsyncLLM.from_engine_args(
            arguments.AsyncEngineArgs(
                model=str(conversion.directory),
                skip_tokenizer_init=True,
                dtype=conversion.precision,
                max_model_len=settings.max_positions,
                max_num_seqs=settings.max_sequences,
                # How a sum rounds would hang on who was served before.
                enable_prefix_caching=False,
                kv_cache_memory_bytes=(settings.kv_budget_mib or HOSTED_KV_MIB) << 20,
                logits_processors=[PROCESSOR],
                disable_log_stats=True,
            )
        )
    except Exception as error:
        held.close()
        raise ModelError(f"{conversion.directory}: vLLM {release} cannot load it: {type(error).__name__}: {error}") from error
    identity = Identity(
        model_hash=served.model_hash,
        backend=VLLM,
        precision=f"{conversion.precision}, batches of up to {settings.max_sequences} rows",
        device=served.device_text(f"vllm {release}"),
    )
    runtime = Vllm(library, engine, conversion.vocabulary, held.close)
    return HostedBackend(runtime, conversion.vocabulary, served.config, identity, settings, served.alignment, on_fault)
