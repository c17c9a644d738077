"""One conversion of the reduced model for all tests."""

from pathlib import Path

import pytest

from tests.unit.llm.tiny_model import TINY
from tools.model.convert import convert
from tools.model.tensor_file import Precision


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("hosted") / "hf"
    convert(TINY, "hf", Precision.FLOAT32, target)
    return target
