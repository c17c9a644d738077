"""Settings by memory: they fit the memory, the services know them, and more memory never gives
less.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cosyserve.engines.one_launch import WEIGHTS_MIB
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.separate_decoder import STEP_AUDIO2
from cosyserve.host.recommendation import CLUSTERS_MIB, LARGE_MODEL, recommended
from cosyserve.host.starting.configurations import BY_NAME, Configuration
from cosyserve.host.starting.plan import make_plan
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


T2W = "COSYSERVE_TOKEN2WAV_"


@pytest.mark.parametrize(
    ("chosen", "extra"),
    [
        ({}, CLUSTERS_MIB),
        ({"COSYSERVE_LLM_GPU_DECODE": "launches"}, CLUSTERS_MIB),
        ({"COSYSERVE_LLM_GPU_DECODE": "one_launch"}, CLUSTERS_MIB + WEIGHTS_MIB),
        ({"COSYSERVE_LLM_GPU_DECODE": "one_launch", f"{T2W}GPU_CLUSTERS": "off"}, WEIGHTS_MIB),
        ({f"{T2W}GPU_CLUSTERS": "off"}, 0),
        ({f"{T2W}GPU_ENGINE": "readable"}, 0),
        ({f"{T2W}GPU_PRECISION": "float32"}, 0),
        ({f"{T2W}GPU_KV_PRECISION": "int8"}, 0),
    ],
)
@pytest.mark.parametrize("size", [8_188, 24_564, 81_559])
def test_weights_that_an_engine_holds_once_more_leave_less(size: int, chosen: dict[str, str], extra: int) -> None:
    without = recommended(machine(gpu(size, (9, 0))), PUBLISHED, chosen={f"{T2W}GPU_CLUSTERS": "off"})
    assert without == recommended(machine(gpu(size, (8, 9))), PUBLISHED)
    told = recommended(machine(gpu(size, (9, 0))), PUBLISHED, chosen=chosen)
    assert bytes_of(without.environ) - bytes_of(told.environ) == extra << 20


def test_clusters_are_of_one_flow_and_one_generation_of_gpus() -> None:
    off = {f"{T2W}GPU_CLUSTERS": "off"}
    for capability, networks in (((9, 0), COSYVOICE3), ((9, 0), STEP_AUDIO2), ((10, 0), None), ((8, 9), None)):
        arguments = (machine(gpu(capability=capability)), PUBLISHED, *(() if networks is None else (networks,)))
        assert recommended(*arguments) == recommended(*arguments, chosen=off)


def test_what_a_user_or_a_configuration_chooses_is_counted() -> None:
    hopper, own = machine(gpu(capability=(9, 0))), {"COSYSERVE_LLM_GPU_DECODE": "one_launch"}
    compiled, readable = BY_NAME["compile+fp16"], BY_NAME["fp16"]
    state = f"{T2W}STATE_BYTES"

    def planned(configuration: Configuration, environ: Mapping[str, str], *, forced: bool = False) -> int:
        plan = make_plan(configuration, hopper, Path("models/demo"), forced=forced, environ=environ)
        return int(plan.environ[state])

    assert planned(compiled, own) < planned(compiled, {}) < planned(readable, {})
    asked = {f"{T2W}GPU_ENGINE": "readable"}
    assert planned(compiled, asked) == planned(readable, {})
    assert planned(compiled, asked, forced=True) == planned(compiled, {})
