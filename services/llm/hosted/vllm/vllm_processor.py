"""The logits processor that vLLM loads by name into the process that runs the model. Imported by
nobody else.

Written against `vllm.v1.sample.logits_processor` of 0.11 to 0.32: its adapter keeps one callable a
request and follows requests that move within the batch. The output ids that a callable is given are
the request's own list. Two things happen to a request there:

* A prompt that does not fit into a step is computed in parts. A token is sampled behind each part,
  and thrown away behind all but the last (`gpu_model_runner.py`; vLLM issue 29045): the list does
  not grow.
* A request that is left out of a step, or set aside for want of memory, is added anew. Ids that are
  still on their way are -1 then.
"""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from services.llm.hosted.force_token import force_token
from services.llm.hosted.run_sampler import RunSampler
from services.llm.hosted.vllm.vllm_backend import ARGUMENT

Processor = Callable[[list[int], torch.Tensor], torch.Tensor]
_REMEMBERED_PER_ROW = 4
"""Choices that are remembered for each place in the batch: a request that is added anew goes on
with its own.
"""


class RunLogitsProcessor(AdapterLogitsProcessor):  # type: ignore[misc]
    """Decides for every request that carries a run; others pass."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._most = _REMEMBERED_PER_ROW * int(vllm_config.scheduler_config.max_num_seqs)
        self._processors: OrderedDict[str, RequestLogitsProcessor] = OrderedDict()

    def is_argmax_invariant(self) -> bool:
        """What is left is another maximum."""
        return False

    def new_req_logits_processor(self, params: Any) -> Processor | None:
        """For a request that comes, or comes back."""
        told = (params.extra_args or {}).get(ARGUMENT)
        if told is None:
            return None
        name = str(told["name"])
        if name not in self._processors:
            bias = None if told["bias"] is None else Path(told["bias"])
            self._processors[name] = RequestLogitsProcessor(
                RunSampler.from_plain(told["run"]), bias, int(told["first"])
            )
        self._processors.move_to_end(name)
        while len(self._processors) > self._most:
            self._processors.popitem(last=False)
        return self._processors[name]


class RequestLogitsProcessor:
    """One run."""

    def __init__(self, sampler: RunSampler, bias: Path | None, first: int) -> None:
        self._sampler, self._bias, self._first = sampler, bias, first
        self._decided = 0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """logits: [rows], changed in place. output_ids: as many as decisions count."""
        if len(output_ids) < self._decided:
            self._sampler.rewind(len(output_ids))
        elif unknown := output_ids[self._decided :]:
            if min(unknown) < 0:
                self._sampler.bypassed()
            else:
                self._sampler.adopt([one - self._first for one in unknown])
        self._decided = len(output_ids) + 1
        force_token(logits, self._sampler, self._bias, self._first)
        return logits
