"""One conversion of the reduced model for all tests."""

from pathlib import Path

import pytest

from tests.unit.llm.hosted.hosts import conversions


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversions(tmp_path_factory.mktemp("hosted"))
