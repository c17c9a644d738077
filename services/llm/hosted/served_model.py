"""The parts of the published model directory that a hosted engine needs in addition to its own
files.
"""

from dataclasses import dataclass

import torch

from cosyserve.errors import SettingsError
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.weights import model_hash
from services.llm.generation.config import LlmConfig, read_config
from services.llm.guards.alignment import FILE as ALIGNMENT
from services.llm.guards.alignment import AlignmentTable
from services.llm.settings import LlmSettings


@dataclass(frozen=True)
class ServedModel:
    config: LlmConfig
    model_hash: str
    alignment: AlignmentTable | None

    @classmethod
    def read(cls, settings: LlmSettings) -> "ServedModel":
        """Raises SettingsError without a model directory, ModelError for an unusable one."""
        if settings.model is None:
            raise SettingsError("model is not set")
        directory = ModelDirectory(settings.model)
        config = read_config(directory)
        table = directory.path / ALIGNMENT
        alignment = AlignmentTable.read(table, config.text_vocabulary) if table.exists() else None
        return cls(config, model_hash(directory), alignment)

    def kv_tokens(self, budget_mib: int) -> int:
        """Number of positions whose keys and values, of two bytes each, fit into `budget_mib`."""
        return (budget_mib << 20) // (2 * 2 * self.config.layers * self.config.kv_width)

    @staticmethod
    def device_text(library: str) -> str:
        """Name of the GPU and version of the library."""
        return f"{torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU'}, {library}"
