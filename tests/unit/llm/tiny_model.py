"""The reference model by itself."""

from pathlib import Path

import torch

from cosyserve.model_directory import ModelDirectory
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.weights import load_tensors
from services.llm.generation.config import read_config

TINY = Path(__file__).parents[2] / "golden" / "tiny"


def model() -> SpeechTokenModel:
    torch.set_num_threads(1)
    directory = ModelDirectory(TINY)
    config = read_config(directory)
    return SpeechTokenModel.build(config, load_tensors(directory, config), torch.device("cpu"))
