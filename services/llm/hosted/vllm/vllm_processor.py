"""The logits processor, which vLLM loads by name into the process that runs the model. No other
module imports it.

Written against `vllm.v1.sample.logits_processor` of 0.11 to 0.32: its adapter has one callable per
request and follows requests that move within the batch. A callable receives the request's own list
of output ids. Two things happen to a request there:

* A prompt that does not fit into a step is computed in parts. A token is sampled after each part,
  and discarded after all but the last (`gpu_model_runner.py`; vLLM issue 29045): the list does not
  grow.
* A request that is left out of a step, or preempted for lack of memory, is added again. Ids that
  are still being computed are -1 then.
"""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from services.llm.hosted.run_sampler import RunSampler, force_token
from services.llm.hosted.vllm.vllm_backend import ARGUMENT

Processor = Callable[[list[int], torch.Tensor], torch.Tensor]
_REMEMBERED_PER_ROW = 4
"""Processors that are kept for each row of the batch, so that a request that is added again
continues with its own.
"""


class RunLogitsProcessor(AdapterLogitsProcessor):  # type: ignore[misc]
    """Samples for every request that carries a run; other requests are unchanged."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._most = _REMEMBERED_PER_ROW * int(vllm_config.scheduler_config.max_num_seqs)
        self._processors: OrderedDict[str, RequestLogitsProcessor] = OrderedDict()

    def is_argmax_invariant(self) -> bool:
        """False: the forced id need not be the maximum."""
        return False

    def new_req_logits_processor(self, params: Any) -> Processor | None:
        """The processor of a request that is added, for the first time or again."""
        arguments = (params.extra_args or {}).get(ARGUMENT)
        if arguments is None:
            return None
        name = str(arguments["name"])
        if name not in self._processors:
            bias = None if arguments["bias"] is None else Path(arguments["bias"])
            self._processors[name] = RequestLogitsProcessor(
                RunSampler.from_plain(arguments["run"]), bias, int(arguments["first"])
            )
        self._processors.move_to_end(name)
        while len(self._processors) > self._most:
            self._processors.popitem(last=False)
        return self._processors[name]


class RequestLogitsProcessor:
    """The logits processor of one run."""

    def __init__(self, sampler: RunSampler, bias: Path | None, first: int) -> None:
        self._sampler, self._bias, self._first = sampler, bias, first
        self._decided = 0

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """logits: [rows], changed in place. output_ids: the ids that the engine has accepted so
        far.
        """
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
