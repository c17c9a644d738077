"""The speech-token model for vLLM: a Qwen2 with a bias in its head. vLLM loads it by name, see
`vllm_plugin`.

Written against `model_executor/models/qwen2.py` and `model_executor/layers` of 0.11 to 0.32.
"""

from typing import Any

from torch import Tensor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.utils import maybe_prefix


class CosyVoice2ForCausalLM(Qwen2ForCausalLM):  # type: ignore[misc]
    """Replaces the head: vLLM's own has no bias, and would silently drop the one in the weights."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.model_config.hf_config
        self.lm_head = ParallelLMHead(
            config.vocab_size,
            config.hidden_size,
            bias=True,
            quant_config=vllm_config.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
        )

    def compute_logits(self, hidden_states: Tensor, *_: Any) -> Any:
        """[rows, hidden] to [rows, ids]. Releases differ in the other arguments."""
        return self.logits_processor(self.lm_head, hidden_states, embedding_bias=self.lm_head.bias)
