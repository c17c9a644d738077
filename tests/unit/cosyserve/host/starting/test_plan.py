"""Which configuration is taken, what the environment keeps, and which engines count as built."""

import re
from pathlib import Path

import pytest

from cosyserve.engines.engine_cache import COMPONENTS, EngineCache, EngineKey
from cosyserve.errors import SettingsError
from cosyserve.host.hardware import Machine
from cosyserve.host.starting import engine_builds as engines
from cosyserve.host.starting.configurations import BY_NAME, CONFIGURATIONS, Configuration, rating
from cosyserve.host.starting.engine_builds import build_commands, converted_directory, engines_are_built
from cosyserve.host.starting.plan import choose_configuration, configurations_to_compare, forced, make_plan
from cosyserve.model_directory import ModelDirectory
from cosyserve.settings import load
from services.llm.settings import LlmSettings
from services.token2wav.__main__ import Token2WavSettings
from services.token2wav.decoders.backend import BACKENDS
from services.token2wav.decoders.engine_identity import WEIGHTS
from services.token2wav.engines import artifacts as keys
from tests.unit.cosyserve.host.fake_gpu import gpu, machine

ENGINES = "COSYSERVE_TOKEN2WAV_ENGINES"
MODEL = Path(__file__).parents[5] / "models" / "demo"
FULL = machine(gpu(), triton="3.7.1", onnxruntime="1.31.1", tensorrt="10.13.0.35")
FACTS = {
    "gpu": "NVIDIA Test",
    "driver": "570.86.15",
    "tensorrt": "10.13.0.35",
    "precision": "fp16",
    "compatibility": "none",
}
COMPATIBLE = {"compatibility": "hardware", "gpu": "any", "driver": "any"}


def fill(root: Path, **other: str) -> dict[str, str]:
    """Plans of the bundled model in an engine cache; returns the environment that names it."""
    directory = ModelDirectory(MODEL)
    facts = FACTS | {"model": directory.content_hash((*WEIGHTS, directory.yaml_name))} | other
    for part in COMPONENTS:
        EngineCache(root).obtain(
            EngineKey(f"token2wav.{part}", facts), lambda made: (made / "plan").write_bytes(b"plan") and None
        )
    return {ENGINES: str(root)}


def steps(configuration: Configuration, found: Machine, environ: dict[str, str]) -> list[list[str]]:
    """What --precompile runs."""
    plan = make_plan(configuration, found, MODEL, forced=False, environ=environ)
    return build_commands(plan.backends, found, MODEL, {**environ, **plan.environ})


def test_names_are_those_of_the_service() -> None:
    assert keys.GRAPHS == "token2wav.graphs"
    assert (engines.PUBLISHED, engines.PUBLISHED_FILE) == (keys.PUBLISHED, keys.PUBLISHED_FILE)
    assert keys.plan_key("pitch", keys.graphs_key("h", "fp16"), {}, []).component == f"token2wav.{COMPONENTS[2]}"


def test_our_own_engines_are_chosen_and_others_are_measured_beside_them(tmp_path: Path) -> None:
    environ = {ENGINES: str(tmp_path / "engines"), "COSYSERVE_CACHE_DIR": str(tmp_path)}
    assert choose_configuration(FULL) == (BY_NAME["compile+fp16"], {})
    found, left = configurations_to_compare(FULL, MODEL, will_build=False, environ=environ)
    assert (found, list(left)) == ([], ["trt+fp16"])
    assert "--precompile builds them" in left["trt+fp16"]
    assert configurations_to_compare(FULL, MODEL, will_build=True, environ=environ) == ([BY_NAME["trt+fp16"]], {})
    fill(tmp_path / "engines")
    assert configurations_to_compare(FULL, MODEL, will_build=False, environ=environ) == ([BY_NAME["trt+fp16"]], {})
    assert configurations_to_compare(
        FULL, MODEL, will_build=True, environ=environ | {"COSYSERVE_LLM_BACKEND": "vllm"}
    ) == ([], {})
    assert configurations_to_compare(machine(), MODEL, will_build=True, environ=environ) == ([], {})
    vllm = machine(gpu(), triton="3.7.1", vllm="0.33.0")
    assert list(configurations_to_compare(vllm, MODEL, will_build=False, environ=environ)[1]) == ["vllm+fp16"]
    directory = converted_directory(MODEL, "vllm", environ)
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    assert configurations_to_compare(vllm, MODEL, will_build=False, environ=environ) == ([BY_NAME["vllm+fp16"]], {})


def test_an_engine_that_was_measured_to_be_faster_takes_the_place_of_our_own(tmp_path: Path) -> None:
    compiled, environ = BY_NAME["compile+fp16"], {"COSYSERVE_CACHE_DIR": str(tmp_path)}
    found, noted = machine(gpu(), triton="3.7.1", vllm="0.33.0"), {"llm": "vllm", "token2wav": "tensorrt"}
    told = make_plan(compiled, found, MODEL, forced=False, environ=environ, noted=noted)
    assert told.backends == noted
    assert told.environ["COSYSERVE_TOKEN2WAV_ENGINE_PRECISION"] == "fp16"
    assert told.environ["COSYSERVE_LLM_CONVERTED"] == str(converted_directory(MODEL, "vllm", environ))
    assert sum("measured to be faster here" in line for line in told.why) == 2
    assert make_plan(
        compiled, found, MODEL, forced=False, environ=environ | {"COSYSERVE_LLM_BACKEND": "torch"}, noted=noted
    ).backends == {"llm": "torch", "token2wav": "tensorrt"}
    assert make_plan(compiled, found, MODEL, forced=True, environ=environ, noted=noted).backends == compiled.backends
    assert (
        make_plan(BY_NAME["cpu"], found, MODEL, forced=False, environ=environ, noted=noted).backends
        == BY_NAME["cpu"].backends
    )


@pytest.mark.parametrize(
    ("other", "environ", "built"),
    [
        ({"driver": "1.2"}, {}, False),
        ({"gpu": "another"}, {}, False),
        ({"tensorrt": "10.10"}, {}, False),
        ({"precision": "fp32"}, {}, False),
        ({"model": "x"}, {}, False),
        # the same by another name
        ({"tensorrt": "10.13.0.35.post1"}, {}, True),
        ({"gpu": "NVIDIA Test MIG 1g.5gb"}, {}, True),
        ({"compute_capability": "8.9"}, {}, True),
        # of settings that the user has or has not
        (COMPATIBLE, {}, False),
        (COMPATIBLE, {"ENGINE_COMPATIBILITY": "hardware"}, True),
        (COMPATIBLE, {"ENGINE_COMPATIBILITY": "hardware", "ENGINE_PRECISION": "bf16"}, False),
    ],
)
def test_engines_are_built_if_they_are_of_this_machine_model_and_settings(
    other: dict[str, str], environ: dict[str, str], built: bool, tmp_path: Path
) -> None:
    mine = {f"COSYSERVE_TOKEN2WAV_{name}": value for name, value in environ.items()}
    assert engines_are_built(BY_NAME["trt+fp16"], FULL, MODEL, fill(tmp_path, **other) | mine) is built


def test_skipped_configurations_come_with_the_reason() -> None:
    reason = "there is no NVIDIA GPU"
    assert choose_configuration(machine()) == (BY_NAME["cpu"], {"compile+fp16": reason, "fp16": reason})


def test_what_the_user_has_set_stays_unless_a_configuration_is_forced() -> None:
    own = {"COSYSERVE_LLM_GPU_ENGINE": "readable", "COSYSERVE_TOKEN2WAV_STATE_BYTES": "1000000000"}
    environ = own | {"COSYSERVE_LLM_BACKEND": "vllm"}
    compiled = BY_NAME["compile+fp16"]
    free = make_plan(compiled, FULL, MODEL, forced=False, environ=environ)
    assert not own.keys() & free.environ.keys()
    assert free.backends == {"llm": "vllm", "token2wav": "torch"}
    kept = make_plan(compiled, FULL, MODEL, forced=True, environ=environ)
    assert kept.environ["COSYSERVE_LLM_GPU_ENGINE"] == "fused"
    assert "COSYSERVE_TOKEN2WAV_STATE_BYTES" not in kept.environ
    assert kept.backends == {"llm": "torch", "token2wav": "torch"}


def test_commands_of_each_configuration(tmp_path: Path) -> None:
    environ = {ENGINES: str(tmp_path / "engines"), "COSYSERVE_CACHE_DIR": str(tmp_path / "cache")}
    where = ["--engines", str(tmp_path / "engines")]
    plans = ["build", "token2wav", str(MODEL), "--precision", "fp16", *where]
    trt, onnx, cpu = (BY_NAME[name] for name in ("trt+fp16", "onnx", "cpu"))
    assert steps(trt, FULL, environ) == [plans]
    new, old = (
        machine(gpu(), tensorrt="10.13.0.35", tensorrt_llm="1.2.0"),
        machine(gpu(), tensorrt="10.10.0.31", tensorrt_llm="0.20.0"),
    )
    trtllm = BY_NAME["trtllm+fp16"]
    hf, checkpoint = (str(converted_directory(MODEL, form, environ)) for form in ("hf", "trtllm-0.20"))
    assert hf.startswith(str(tmp_path / "cache" / "converted"))
    assert steps(trt, new, environ) == [plans]
    assert steps(trtllm, new, environ) == [["convert", str(MODEL), "--target", "hf", "--output", hf]]
    assert steps(trtllm, old, environ) == [
        ["convert", str(MODEL), "--target", "trtllm-0.20", "--output", checkpoint],
        ["build", "llm", checkpoint],
    ]
    assert make_plan(trtllm, new, MODEL, forced=False, environ=environ).environ["COSYSERVE_LLM_CONVERTED"] == hf
    assert "COSYSERVE_LLM_CONVERTED" not in make_plan(trtllm, old, MODEL, forced=False, environ=environ).environ
    vllm = machine(gpu(), tensorrt="10.13.0.35", vllm="0.19.0")
    export = str(converted_directory(MODEL, "vllm", environ))
    assert steps(BY_NAME["vllm+fp16"], vllm, environ) == [
        ["convert", str(MODEL), "--target", "vllm", "--output", export]
    ]
    first = environ | {"COSYSERVE_LLM_BACKEND": "auto", "COSYSERVE_LLM_AUTO_FIRST": "vllm"}
    assert make_plan(trt, vllm, MODEL, forced=False, environ=first).environ["COSYSERVE_LLM_CONVERTED"] == export
    assert (
        make_plan(BY_NAME["vllm+fp16"], vllm, MODEL, forced=False, environ=environ).environ["COSYSERVE_LLM_CONVERTED"]
        == export
    )
    assert steps(onnx, FULL, environ) == [["export", str(MODEL), "--precision", "fp32", *where]]
    assert steps(cpu, FULL, environ) == []


def test_commands_make_what_the_settings_will_look_for(tmp_path: Path) -> None:
    flow = "COSYSERVE_TOKEN2WAV_"
    environ = {
        "COSYSERVE_CACHE_DIR": str(tmp_path), "COSYSERVE_LLM_BACKEND": "vllm", f"{flow}ENGINE_PRECISION": "bf16",
        f"{flow}ENGINE_COMPATIBILITY": "hardware", f"{flow}WIDEST_STEP": "8", f"{flow}DEVICE": "cuda:1",
    }  # fmt: skip
    found, trt = machine(gpu(), tensorrt="10.13.0.35", tensorrt_llm="0.20.0", vllm="0.19.0"), BY_NAME["trt+fp16"]
    options = ["--precision", "bf16", "--streams", "8", "--compatibility", "hardware", "--device", "cuda:1"]
    plans = ["build", "token2wav", str(MODEL), *options]
    export = str(converted_directory(MODEL, "vllm", environ))
    assert steps(trt, found, environ) == [plans, ["convert", str(MODEL), "--target", "vllm", "--output", export]]
    assert steps(trt, found, environ | {"COSYSERVE_LLM_CONVERTED": "/mine"}) == [plans]
    assert steps(trt, found, environ | {"COSYSERVE_LLM_BACKEND": "torch"}) == [plans]
    published = {
        f"{flow}ENGINE_ESTIMATOR": "published",
        f"{flow}ENGINE_PRECISION": "fp32",
        f"{flow}BACKEND": "onnxruntime",
    }
    file = str(MODEL / "flow.decoder.estimator.fp32.onnx")
    assert steps(trt, FULL, environ | published) == [["export", str(MODEL), "--precision", "fp32", "--published", file]]


TENSORRT = {"tensorrt__cu12": "10.13.0.35"}
LIBRARIES = {"triton": "3.7.1", "onnxruntime": "1.31.1"}


@pytest.mark.parametrize(
    ("found", "runs"),
    [
        (machine(onnxruntime="1.31.1"), ["onnx", "cpu"]),
        (machine(), ["cpu"]),
        (machine(gpu(1_024), **LIBRARIES, **TENSORRT), ["onnx", "cpu"]),
        (machine(gpu(capability=(7, 5)), **LIBRARIES, **TENSORRT), ["fp16", "trt+fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES), ["compile+fp16", "fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, **TENSORRT), ["compile+fp16", "fp16", "trt+fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, compiler=None), ["fp16", "onnx", "cpu"]),
        (machine(gpu(), triton="3.3.0", tensorrt="8.6.1"), ["fp16", "cpu"]),
        (machine(gpu(), **LIBRARIES, tensorrt="11.4.0.106"), ["compile+fp16", "fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, tensorrt_llm="1.2.1"), ["compile+fp16", "fp16", "trtllm+fp16", "onnx", "cpu"]),
        (machine(gpu(), **LIBRARIES, vllm="0.33.0"), ["compile+fp16", "fp16", "vllm+fp16", "onnx", "cpu"]),
    ],
)
def test_what_runs_where(found: Machine, runs: list[str]) -> None:
    assert [configuration.name for configuration in CONFIGURATIONS if configuration.lacks(found) is None] == runs


@pytest.mark.parametrize(
    ("name", "found", "reason"),
    [
        ("trt+fp16", machine(gpu()), "tensorrt is not installed: pip install tensorrt-cu13=="),
        ("compile+fp16", machine(gpu(), triton="3.3.0"), "triton 3.3.0 is not supported"),
        ("compile+fp16", machine(gpu(capability=(7, 5)), triton="3.7.1"), "NVIDIA Test is older than Ampere"),
        ("compile+fp16", machine(gpu(), triton="3.7.1", compiler=None), "there is no C compiler"),
        ("fp16", machine(gpu(1_024)), "NVIDIA Test has 1024 MiB, 1900 are the least"),
        ("trt+fp16", machine(), "there is no NVIDIA GPU"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(name: str, found: Machine, reason: str) -> None:
    with pytest.raises(SettingsError, match=f"^--force-config {re.escape(f'{name}: {reason}')}"):
        forced(name, found)


@pytest.mark.parametrize("name", list(BY_NAME))
@pytest.mark.parametrize("memory", [3_072, 8_188, 81_559])
def test_the_services_take_every_setting(name: str, memory: int) -> None:
    configuration = BY_NAME[name]
    environ = configuration.settings(machine(gpu(memory), **LIBRARIES, **TENSORRT), 2_500 << 20).environ | {
        f"COSYSERVE_{service}_{variable}": value
        for service in ("LLM", "TOKEN2WAV")
        for variable, value in (
            ("LISTEN", "127.0.0.1:0"),
            ("MODEL", "models/demo"),
            ("BACKEND", configuration.backends[service.lower()]),
        )
    }
    llm, flow = load(LlmSettings, "COSYSERVE_LLM_", environ), load(Token2WavSettings, "COSYSERVE_TOKEN2WAV_", environ)
    assert flow.backend in BACKENDS
    assert flow.device == ("cuda" if configuration.on_gpu else "cpu")
    assert llm.device == ("cuda" if configuration.on_gpu and memory > 4_000 else "cpu")


@pytest.mark.parametrize(
    ("factor", "word"),
    [
        (0.1, "very fast"),
        (0.2999, "very fast"),
        (0.3, "fast"),
        (0.69, "fast"),
        (0.7, "acceptable"),
        (1.0, "acceptable"),
        (1.01, "slow"),
    ],
)
def test_ratings(factor: float, word: str) -> None:
    assert rating(factor) == word
