"""What the tests of several trainings read."""

from pathlib import Path

import pytest

from recipes.demo_voice.training.speech import Speech
from tests.unit.recipes import small_work


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_work.make(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def speech(work: Path) -> Speech:
    return Speech.read(work)
