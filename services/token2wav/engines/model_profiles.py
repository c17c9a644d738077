"""The profiles of the graphs of a model directory."""

from cosyserve.engines.engine_cache import COMPONENTS, FLOW_COMPONENTS
from cosyserve.model_directory import ModelDirectory
from services.token2wav.engines.chunks.shapes import chunk_profiles
from services.token2wav.engines.shapes import Profile, frames_around, profiles
from services.token2wav.flow.loading import network_files
from services.token2wav.flow.step_dit.weights import StepDitConfig


def model_profiles(directory: ModelDirectory, streams: int, *, masked: bool = True) -> dict[str, list[Profile]]:
    """By component, in the order of COMPONENTS. streams: most in a batch. masked: False is the
    published estimator. Raises ModelError for a directory that is not understood.
    """
    config, around = network_files(directory).config(directory), frames_around(directory)
    built = {}
    for component in COMPONENTS:
        if isinstance(config, StepDitConfig) and component in FLOW_COMPONENTS:
            built[component] = chunk_profiles(component, streams, config)
        else:
            built[component] = profiles(component, streams, config.position_width, masked=masked, around=around)
    return built
