"""Which models and limits suit fused steps."""

from cosyserve.errors import SettingsError
from services.llm.config import LlmConfig
from services.llm.gpu.tuning import BUCKETS

SMALLEST_DIVISOR = 16
"""Matrix units take so many numbers of a row at a time."""
MOST_CANDIDATES = 128


def check(config: LlmConfig, most_sequences: int) -> None:
    """Raises SettingsError naming what fused steps cannot do."""
    head, instead = config.head_size, "set COSYSERVE_LLM_GPU_ENGINE=readable"
    widths = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size, "head_size": head}
    for name, width in widths.items():
        if width % SMALLEST_DIVISOR:
            raise SettingsError(f"fused steps need a {name} that {SMALLEST_DIVISOR} divides, the model has {width}; {instead}")
    if head & (head - 1):
        raise SettingsError(f"fused steps need a head_size that is a power of two, the model has {head}; {instead}")
    if config.sampling.top_k > MOST_CANDIDATES:
        raise SettingsError(f"fused steps sample among at most {MOST_CANDIDATES} ids, top_k is {config.sampling.top_k}; {instead}")
    if most_sequences > BUCKETS[-1]:
        raise SettingsError(f"COSYSERVE_LLM_MAX_SEQUENCES is {most_sequences}, fused steps take at most {BUCKETS[-1]}")
