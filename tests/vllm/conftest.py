"""For all tests on the real vLLM: `make test-vllm` runs them, in an environment of its own;
elsewhere they are skipped.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyserve.engines.gpu_facts import visible_gpus
from services.llm.hosted import installed_libraries
from tools.model.checkpoints.tensor_file import Precision
from tools.model.convert import convert

MODEL = Path(__file__).parents[2] / "models" / "demo"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(1200))
            # The library and its imports emit warnings of their own.
            item.add_marker(pytest.mark.filterwarnings("default"))
            if importlib.util.find_spec("vllm") is None:
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed; make test-vllm installs it"))


@pytest.fixture(scope="session", autouse=True)
def _gpu_or_stand_in() -> Iterator[None]:
    """vLLM's wheel for CPUs needs no GPU, but our check requires one: on a machine without GPU the
    check sees a fake one.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not visible_gpus():
            patch.setattr(
                installed_libraries,
                "visible_gpus",
                lambda: [{"gpu": "none", "compute_capability": "0.0", "driver": "0"}],
            )
        yield


@pytest.fixture(scope="session")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the bundled model as `hf` and `vllm` in float32, `hf-bfloat16` and
    `vllm-bfloat16`.
    """
    directory = tmp_path_factory.mktemp("converted")
    for form in ("hf", "vllm"):
        convert(MODEL, form, Precision.FLOAT32, directory / form)
        convert(MODEL, form, Precision.BFLOAT16, directory / f"{form}-bfloat16")
    return directory
