"""The graphs of token2wav that engines run, by the networks of a model's generation."""

from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory

FLOW_COMPONENTS, VOCODER_COMPONENTS = ("encoder", "estimator"), ("pitch", "filter")
COMPONENTS = FLOW_COMPONENTS + VOCODER_COMPONENTS
"""Their names in the engine cache follow `token2wav.`."""
VOCODER_NETWORK = "hift"
"""The vocoder that has graphs; another one runs in torch."""


def has_vocoder_graphs(directory: ModelDirectory) -> bool:
    """Whether the vocoder is run by engines too. Raises ModelError for a directory of no
    generation.
    """
    return generation_of(directory).vocoder_network == VOCODER_NETWORK


def components_of(directory: ModelDirectory) -> tuple[str, ...]:
    """The graphs of a model. Raises ModelError for a directory of no generation."""
    return COMPONENTS if has_vocoder_graphs(directory) else FLOW_COMPONENTS
