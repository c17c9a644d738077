"""Settings by memory: they fit the memory, the services know them, and more memory never gives
less.
"""

from collections.abc import Mapping

import pytest

from cosyserve.host.hardware import LARGE_MODEL, recommended
from cosyserve.settings import load
from services.llm.settings import LlmSettings
from services.orchestrator.settings import OrchestratorSettings
from services.token2wav.__main__ import Token2WavSettings
from tests.unit.cosyserve.host.fake_gpu import gpu, machine

PUBLISHED = 2_500 << 20
SIZES = (2_048, 3_072, 4_096, 6_144, 8_188, 12_288, 16_384, 24_564, 40_960, 81_559, 143_771)


def bytes_of(environ: Mapping[str, str]) -> int:
    own = int(environ["COSYSERVE_TOKEN2WAV_STATE_BYTES"]) + int(environ["COSYSERVE_TOKEN2WAV_PROMPT_CACHE_BYTES"])
    return own + (int(environ["COSYSERVE_LLM_KV_BUDGET_MIB"]) << 20 if environ["COSYSERVE_LLM_DEVICE"] == "cuda" else 0)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0)])
@pytest.mark.parametrize("size", SIZES)
def test_it_fits_and_the_services_take_it(size: int, capability: tuple[int, int]) -> None:
    told = recommended(machine(gpu(size, capability)), PUBLISHED)
    weights = 600 + (0 if told.environ["COSYSERVE_LLM_DEVICE"] == "cpu" else 1000 if capability >= (8, 0) else 2600)
    assert bytes_of(told.environ) + (weights << 20) < size << 20
    assert int(told.environ["COSYSERVE_TOKEN2WAV_STATE_BYTES"]) > 2 * 231_000_000
    common = {"LISTEN": "127.0.0.1:0"}
    for kind, prefix, more in (
        (LlmSettings, "COSYSERVE_LLM_", {"MODEL": "models/demo"}),
        (Token2WavSettings, "COSYSERVE_TOKEN2WAV_", {"MODEL": "models/demo"}),
        (OrchestratorSettings, "COSYSERVE_ORCHESTRATOR_", {"FRONTEND": "a:1", "LLM": "a:2", "TOKEN2WAV": "a:3"}),
    ):
        load(kind, prefix, told.environ | {prefix + name: value for name, value in (common | more).items()})


def test_more_memory_never_gives_less() -> None:
    told = [recommended(machine(gpu(size)), PUBLISHED).environ for size in SIZES]
    for device in ("cpu", "cuda"):
        sums = [bytes_of(environ) for environ in told if environ["COSYSERVE_LLM_DEVICE"] == device]
        assert len(sums) >= 2
        assert sums == sorted(sums)
    devices = [environ["COSYSERVE_LLM_DEVICE"] for environ in told]
    assert devices == sorted(devices)


@pytest.mark.parametrize(
    ("size", "tier"),
    [
        (1_024, "CPU"),
        (2_048, "2 to 4 GB"),
        (4_096, "4 to 8 GB"),
        (8_188, "8 GB and more"),
        (24_564, "8 GB and more"),
        (40_960, "data-centre"),
    ],
)
def test_tiers(size: int, tier: str) -> None:
    assert recommended(machine(gpu(size)), PUBLISHED).tier.startswith(tier)


def test_a_small_gpu_is_the_flows_and_the_cores_are_the_llms() -> None:
    told = recommended(machine(gpu(3_072), cores=12), PUBLISHED)
    assert (told.environ["COSYSERVE_TOKEN2WAV_DEVICE"], told.environ["COSYSERVE_LLM_DEVICE"]) == ("cuda", "cpu")
    assert told.environ["COSYSERVE_LLM_THREADS"] == "12"


def test_threads_are_for_large_models() -> None:
    assert recommended(machine(cores=8), PUBLISHED).environ["COSYSERVE_LLM_THREADS"] == "4"
    assert "COSYSERVE_LLM_THREADS" not in recommended(machine(cores=8), LARGE_MODEL - 1).environ
    assert "COSYSERVE_LLM_THREADS" not in recommended(machine(cores=1.5), PUBLISHED).environ
