"""What `inspect` says of a directory of flow and vocoder alone."""

from typing import Any

import torch

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import SeparateDecoder, decoder_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_FRAMES_PER_TOKEN, TOKENS_PER_SECOND
from services.token2wav.flow.loading import network_files
from services.token2wav.vocoder.loading import load_vocoder


def known_decoder(directory: ModelDirectory, problems: list[str]) -> SeparateDecoder | None:
    """The decoder that a directory holds alone; an unknown one is a problem."""
    try:
        return decoder_of(directory)
    except ModelError as error:
        problems.append(str(error))
        return None


def describe_decoder(directory: ModelDirectory, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of flow and vocoder alone. Raises ModelError naming the first tensor that is not as the yaml
    says.
    """
    network, cpu = network_files(directory), torch.device("cpu")
    config = network.config(directory)
    network.tensors(directory, config, cpu, torch.float32)
    load_vocoder(directory, cpu)
    frame, bounded = config.state_bytes_per_frame(), network.past.held_frames
    state = {"state_bytes_per_second": TOKENS_PER_SECOND * MEL_FRAMES_PER_TOKEN * frame}
    if bounded is not None:
        state["most_state_bytes_behind_the_prompt"] = bounded * frame
    return {"memory": {"torch_float32": state}}
