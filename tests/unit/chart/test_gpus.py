"""GPUs whole, in slices and shared, and Jobs that build engines on them."""

import argparse

import pytest

from cosyserve.settings import load
from services.token2wav.__main__ import Token2WavSettings
from tests.unit.chart.manifests_of import (
    by_name,
    container,
    documents,
    environment,
    needs_helm,
    pod,
    refusal,
    with_set,
)
from tools.chart.rendering import ROOT, examples

pytestmark = needs_helm
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("name", "llm", "token2wav"),
    [
        ("gpu-each-stage", "nvidia.com/gpu", "nvidia.com/gpu"),
        ("one-gpu", "nvidia.com/gpu.shared", "nvidia.com/gpu.shared"),
        ("many", "nvidia.com/mig-2g.20gb", "nvidia.com/gpu"),
    ],
)
def test_a_whole_gpu_a_slice_or_a_share(name: str, llm: str, token2wav: str) -> None:
    deployments = by_name("Deployment", documents(name))
    for service, resource in (("llm", llm), ("token2wav", token2wav)):
        limits = container(deployments[service])["resources"]["limits"]
        assert limits[resource] == "1"
        assert limits["memory"]
        assert pod(deployments[service])["tolerations"] == [TAINT]
    for service in ("frontend", "orchestrator", "gateway"):
        assert "nvidia" not in str(deployments[service])
    assert pod(by_name("Deployment", documents("many"))["token2wav"])["runtimeClassName"] == "nvidia"
    assert "nvidia" not in str(documents())


def test_the_device_plugin_of_the_example_offers_what_one_gpu_asks_for() -> None:
    (config,) = examples()[ROOT / "k8s" / "examples" / "gpu-time-slicing.yaml"]
    assert "renameByDefault: true" in config["data"]["twice"]
    assert "replicas: 2" in config["data"]["twice"]


def jobs() -> dict[str, dict]:
    return {
        name.removeprefix("engine-build-"): job for name, job in by_name("Job", documents("gpu-each-stage")).items()
    }


def test_a_job_for_each_engine_on_the_gpu_that_it_is_for() -> None:
    deployments = by_name("Deployment", documents("gpu-each-stage"))
    assert set(jobs()) == {"llm", "token2wav"}
    for service, job in jobs().items():
        builder, serving = job["spec"]["template"]["spec"], pod(deployments[service])
        (build,) = builder["containers"]
        assert build["image"] == container(deployments[service])["image"]
        assert build["resources"]["limits"]["nvidia.com/gpu"] == "1"
        for field in ("nodeSelector", "tolerations"):
            assert builder[field] == serving[field]
        volumes = {each["name"]: each for each in builder["volumes"]}
        assert volumes["kernels"] == {"name": "kernels", "persistentVolumeClaim": {"claimName": "compiled-kernels"}}
        assert volumes["kernels"] in serving["volumes"]
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert builder["restartPolicy"] == "Never"


def test_what_is_built_is_what_is_served() -> None:
    deployments = by_name("Deployment", documents("gpu-each-stage"))
    llm, token2wav = (job["spec"]["template"]["spec"]["containers"][0] for _, job in sorted(jobs().items()))
    settings = load(Token2WavSettings, "COSYSERVE_TOKEN2WAV_", environment(deployments["token2wav"]))
    assert settings.auto_first == "tensorrt"
    assert token2wav["args"] == ["/models/CosyVoice2-0.5B", "--precision", settings.engine_precision]
    served = environment(deployments["llm"])
    assert served["COSYSERVE_LLM_AUTO_FIRST"] == "tensorrt_llm"
    assert llm["args"][-2:] == ["--output", served["COSYSERVE_LLM_CONVERTED"]]
    for build in (llm, token2wav):
        assert {"name": "COSYSERVE_CACHE_DIR", "value": "/var/cache/cosyserve"} in build["env"]


@pytest.mark.parametrize("service", ["llm", "token2wav"])
def test_the_commands_of_the_jobs_are_commands_of_ours(service: str) -> None:
    from cosyserve.__main__ import parser

    build = jobs()[service]["spec"]["template"]["spec"]["containers"][0]
    assert build["command"][1:3] == ["-m", "cosyserve"]
    given = parser().parse_args([*build["command"][3:], *build["args"]])
    assert isinstance(given, argparse.Namespace)
    assert given.command == "model"
    assert given.step == ("build" if service == "token2wav" else "convert")


def test_builds_that_could_not_be_kept_are_refused() -> None:
    gpu = "services.llm.gpu.count=1,engineBuild.llm=true"
    assert "kernels.claim" in refusal("access.insecure=true", f"{gpu},model.claim=weights")
    assert "model.claim" in refusal("access.insecure=true", f"{gpu},kernels.claim=kernels")
    built = "engineBuild.token2wav=true,kernels.claim=kernels,model.claim=weights"
    assert "services.token2wav.gpu.count" in refusal("access.insecure=true", built)
    assert by_name("Job", with_set(f"{gpu},kernels.claim=kernels,model.claim=weights"))
