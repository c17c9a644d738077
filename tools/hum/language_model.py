"""`llm.pt` of the bundled model: random, but it stops.

The final norm gives the decoder an input of constant length, so the spread of the logits is a matter of scale, and end-of-speech can be
given a fixed chance: as soon as it may be drawn (after twice as many tokens as text ids) a sentence ends within some ten tokens.
"""

import math

import torch
from torch import Tensor

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH
from services.llm.config import LlmConfig
from services.llm.engine.weights import expected_tensors
from tools.hum.draws import Draws

LOGIT_SPREAD = 2.0
END_LOGIT = 7.2
"""Among the 25 candidates of the nucleus, at this spread, about one chance in nine at every step."""
NEVER = -30.0


def weights(config: LlmConfig, draws: Draws) -> dict[str, Tensor]:
    """Every tensor of `expected_tensors`, float32."""
    made = {name: _tensor(name, shape, config, draws) for name, shape in expected_tensors(config).items()}
    special = [END_OF_SPEECH, RESERVED_SPEECH, FILL]
    made["llm_decoder.weight"][special] = 0.0
    made["llm_decoder.bias"] = torch.zeros_like(made["llm_decoder.bias"])
    made["llm_decoder.bias"][special] = torch.tensor([END_LOGIT, NEVER, NEVER])
    return made


def _tensor(name: str, shape: tuple[int, ...], config: LlmConfig, draws: Draws) -> Tensor:
    if name == "llm_decoder.weight":
        return draws.normal(name, shape, LOGIT_SPREAD / math.sqrt(config.hidden_size))
    if "norm" in name:
        return torch.ones(shape)
    if len(shape) == 1:
        return draws.normal(name, shape, 0.1)
    if "embed" in name:
        return draws.normal(name, shape, 1.0)
    return draws.scaled(name, shape)
