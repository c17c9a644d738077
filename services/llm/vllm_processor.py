"""The logits processor that vLLM loads by name into the process that runs the model. Imported by nobody else.

Written against `vllm.v1.sample.logits_processor` of 0.11 to 0.32: its adapter keeps one callable a request and follows requests that move
within the batch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from services.llm.deciding import Decider
from services.llm.extended_vocabulary import HEAD_BIAS_FILE, side_file
from services.llm.one_id import leave_one_id
from services.llm.vllm_backend import ARGUMENT

Processor = Callable[[list[int], torch.Tensor], torch.Tensor]


class SeededChoices(AdapterLogitsProcessor):  # type: ignore[misc]
    """Decides for every request that carries a run; others pass."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._bias = side_file(Path(vllm_config.model_config.model), HEAD_BIAS_FILE)

    def is_argmax_invariant(self) -> bool:
        """What is left is another maximum."""
        return False

    def new_req_logits_processor(self, params: Any) -> Processor | None:
        """For a request that comes, or comes back after it was set aside."""
        told = (params.extra_args or {}).get(ARGUMENT)
        return None if told is None else SeededChoice(Decider.from_plain(told["run"]), self._bias, int(told["text_ids"]))


class SeededChoice:
    """One run. It keeps what it has decided: the output ids can lag behind where steps overlap."""

    def __init__(self, decider: Decider, bias: Path, text_ids: int) -> None:
        self._decider, self._bias, self._text_ids = decider, bias, text_ids
        self._begun = False

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
        """logits: [rows], changed in place."""
        if not self._begun:
            # A request that was set aside for want of memory begins anew behind what it had made; ids that are still open are negative.
            self._decider.passed([one - self._text_ids for one in output_ids if one >= 0])
            self._begun = True
        leave_one_id(logits, self._decider, self._bias, self._text_ids)
        return logits
