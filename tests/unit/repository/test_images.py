"""Images and compose files: no process is root, everything is pinned, what is copied is there, and
the services know every setting.
"""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cosyserve.engines.gpu_facts import Gpu
from cosyserve.errors import SettingsError
from cosyserve.host.hardware import SUPPORTED_LIBRARIES, Machine
from cosyserve.host.recommendation import recommended
from cosyserve.settings import load
from cosyserve.tls.certificate_files import CertificateFiles
from services.frontend.settings import FrontendSettings
from services.gateway.settings import GatewaySettings
from services.llm.settings import LlmSettings
from services.orchestrator.settings import OrchestratorSettings
from services.token2wav.__main__ import Token2WavSettings
from services.token2wav.engines.tensorrt import INSTALL

ROOT = Path(__file__).parents[3]
PORTS = {"frontend": 50052, "llm": 50053, "token2wav": 50054, "orchestrator": 50051, "gateway": 8080}
PUBLISHED = {"orchestrator": "${PUBLIC:-127.0.0.1:50051}:50051", "gateway": "${PUBLIC_HTTP:-127.0.0.1:8080}:8080"}
"""The port of the host for each service that callers outside reach."""
SETTINGS = {
    "frontend": FrontendSettings,
    "llm": LlmSettings,
    "token2wav": Token2WavSettings,
    "orchestrator": OrchestratorSettings,
    "gateway": GatewaySettings,
}
COMPOSE = ("compose.yaml", "compose.gpus.yaml")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
JOINED = re.sub(r"\\\n\s*", "", DOCKERFILE)


def stages() -> dict[str, str]:
    """Instructions of each stage of the Dockerfile, those of the stages it is made from before
    them.
    """
    stage_texts: dict[str, str] = {}
    for block in re.split(r"^(?=FROM )", JOINED, flags=re.MULTILINE)[1:]:
        came, name = re.match(r"FROM (\S+) AS (\S+)", block).groups()  # type: ignore[union-attr]
        stage_texts[name] = stage_texts.get(came, "") + block
    return stage_texts


def services(file: str) -> dict[str, Any]:
    """The services of a compose file, `extends` resolved: mappings and lists are joined, the rest
    is replaced.
    """

    def resolved(path: Path, name: str) -> dict[str, Any]:
        service = dict(yaml.safe_load(path.read_text(encoding="utf-8"))["services"][name])
        above = service.pop("extends", None)
        return (
            service
            if above is None
            else joined(resolved(path.parent / above.get("file", path.name), above["service"]), service)
        )

    def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        both = dict(first)
        for key, value in second.items():
            if isinstance(value, dict):
                both[key] = joined(both.get(key, {}), value)
            else:
                both[key] = [*both.get(key, []), *value] if isinstance(value, list) else value
        return both

    return {
        name: resolved(ROOT / file, name)
        for name in yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["services"]
    }


def environment(service: dict[str, Any]) -> dict[str, str]:
    lines = [line for file in service["env_file"] for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    variables = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {**variables, **{name: interpolated(value) for name, value in service["environment"].items()}}


def interpolated(text: str, **environ: str) -> str:
    """As compose reads it: ${NAME:-default} and ${NAME:+replacement}."""

    def value(match: re.Match[str]) -> str:
        given = environ.get(match["name"], "")
        return (match["text"] if given else "") if match["kind"] == "+" else given or match["text"]

    return re.sub(r"\$\{(?P<name>\w+):(?P<kind>[+-])(?P<text>[^}]*)\}", value, text)


@pytest.mark.parametrize(
    ("target", "service"), [*((name, name) for name in PORTS), ("llm-cpu", "llm"), ("token2wav-cpu", "token2wav")]
)
def test_every_image_is_nobodys_and_asks_after_its_health(target: str, service: str) -> None:
    stage = stages()[target]
    assert re.findall(r"^USER (\S+)", stage, re.MULTILINE)[-1] == "10001"
    assert f"EXPOSE {PORTS[service]}" in stage
    assert f"COSYSERVE_{service.upper()}_LISTEN=0.0.0.0:{PORTS[service]}" in stage
    (probe,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", stage, re.MULTILINE)
    entry = json.loads(re.findall(r"^ENTRYPOINT (\[.*\])$", stage, re.MULTILINE)[-1])
    asks = ["services.gateway.probe"] if service == "gateway" else ["cosyserve.probe", "--http"]
    assert json.loads(probe) == [entry[0], "-m", *asks, "8081"]
    assert f"COSYSERVE_{service.upper()}_HEALTH_LISTEN=127.0.0.1:8081" in stage
    assert entry[1:] == ["-m", f"services.{service}"]


def test_what_images_are_made_of_is_pinned() -> None:
    images = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", JOINED, re.MULTILINE))
    for came in re.findall(r"^FROM (\S+)", JOINED, re.MULTILINE):
        if not came.startswith("${"):
            assert came in stages()
            continue
        assert re.search(r":\d+\.\d+(\.\d+)?", images[came.strip("${}")])
    for line in re.findall(r"pip install .*", JOINED):
        assert "--constraint" in line
    assert re.search(r"^ARG TENSORRT_PACKAGE=tensorrt-cu\d+==\d+\.\d+", JOINED, re.MULTILINE)


def test_an_image_has_one_generation_of_cuda() -> None:
    """Of the base, of TensorRT, and in the doctor's line and the extra for GPUs; torch on PyPI is
    built for CUDA 13 from 2.11 on.
    """
    (base,) = re.findall(r"^ARG CUDA_IMAGE=nvidia/cuda:(\d+)\.", JOINED, re.MULTILINE)
    (package, release) = re.findall(r"^ARG TENSORRT_PACKAGE=(\S+)==(\S+)", JOINED, re.MULTILINE)[0]
    (doctor,) = (library.install for library in SUPPORTED_LIBRARIES if library.name == "tensorrt")
    extra = tomllib.loads((ROOT / "packages" / "server" / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["gpu"]
    (wanted,) = (line for line in extra if line.startswith("tensorrt"))
    assert (package, doctor) == (f"tensorrt-cu{base}", f"{package}=={release}")
    assert INSTALL.startswith(f"pip install {doctor} ")
    assert wanted.startswith(f"{package}>=10.")
    assert wanted.endswith(",<11")
    assert not any("tensorrt_llm" in line for line in extra)
    assert "torchaudio" in extra


def test_every_build_ends_with_a_check_of_what_goes_together() -> None:
    runs = [
        run for run in re.findall(r"^RUN .*", JOINED, re.MULTILINE) if "pip install" in run or "image_packages" in run
    ]
    assert len(runs) == 8
    for run in runs:
        assert (
            run.endswith("&& pip check")
            or "/image_packages.py --constraint constraints-trtllm.txt" in run.rpartition("&&")[2]
        )


@pytest.mark.parametrize("target", ["llm", "token2wav"])
def test_what_engines_compile_and_build_is_kept_where_it_can_be_executed(target: str) -> None:
    image = dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", stages()[target], re.MULTILINE))))
    # Libraries that are imported there make directories at home, and the root is read-only.
    assert image["HOME"] == image["COSYSERVE_CACHE_DIR"] == "/var/cache/cosyserve"
    for variables in (image, *(services(file)[target]["environment"] for file in COMPOSE)):
        assert variables["TORCHINDUCTOR_CACHE_DIR"].startswith("/var/cache/cosyserve/")
        # Triton's own default is below HOME, and kernels of ours have one setting.
        assert "TRITON_CACHE_DIR" not in variables


def test_the_images_of_engines_try_what_they_bring() -> None:
    assert "COSYSERVE_LLM_AUTO_FIRST=tensorrt_llm" in stages()["llm"]
    assert re.search(r"pip install .*\[token2wav,engines\].* \$\{TENSORRT_PACKAGE:\+", stages()["token2wav"])


def test_what_can_be_chosen_is_used_and_nothing_is_said_twice() -> None:
    for argument in re.findall(r"^ARG (\w+)", JOINED, re.MULTILINE):
        assert JOINED.count(f"${{{argument}") >= 1, f"{argument} changes nothing"
    for block in re.split(r"^(?=FROM )", JOINED, flags=re.MULTILINE):
        copies = re.findall(r"^COPY .*$", block, re.MULTILINE)
        assert len(copies) == len(set(copies))
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert len(ignored) == len(set(ignored))


def test_what_is_copied_is_there_and_sent_to_the_builder() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for line in re.findall(r"^COPY (.*)$", JOINED, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignore


@pytest.mark.parametrize("file", COMPOSE)
def test_compose_starts_targets_of_the_dockerfile_as_nobody_in_particular(file: str) -> None:
    by_name = services(file)
    assert set(by_name) == set(PORTS)
    for name, service in by_name.items():
        assert name in stages()
        assert (service["build"]["target"], service["read_only"], service["cap_drop"]) == (name, True, ["ALL"])
        weights = [
            (mount["type"], mount["target"], mount["read_only"])
            for mount in service.get("volumes", ())
            if isinstance(mount, dict)
        ]
        assert weights == [("bind", "/models", True)] * (name not in PUBLISHED)
        assert service.get("ports") == ([PUBLISHED[name]] if name in PUBLISHED else None)
    declared = set(yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["volumes"])
    named = set()
    for name, service in by_name.items():
        plain = (interpolated(mount) for mount in service.get("volumes", ()) if isinstance(mount, str))
        for volume, target, *_ in (mount.split(":") for mount in plain):
            if volume == "/dev/null":
                assert (name, target) == ("orchestrator", "/etc/cosyserve/keys")
                continue
            named.add(volume)
            # A new volume takes the owner of what is there in the image.
            assert re.search(rf"install --directory --owner=10001 --group=10001 {target}\b", stages()[name]), volume
    assert named == declared


@pytest.mark.parametrize("file", COMPOSE)
def test_the_services_know_every_setting(file: str) -> None:
    for name, service in services(file).items():
        prefix = f"COSYSERVE_{name.upper()}_"
        variables = {**environment(service), f"{prefix}LISTEN": f"0.0.0.0:{PORTS[name]}"}
        if name == "orchestrator":
            with pytest.raises(SettingsError, match=r"KEYS_FILE.*INSECURE=true"):
                load(SETTINGS[name], prefix, variables)
            for way in ({"INSECURE": "true"}, {"KEYS_DIR": "/srv/keys"}):
                said = {key: interpolated(value, **way) for key, value in service["environment"].items()}
                load(SETTINGS[name], prefix, {**variables, **said})
            variables |= {f"{prefix}INSECURE": "true"}
        load(SETTINGS[name], prefix, variables)
        for stage in ("frontend", "llm", "token2wav"):
            if name == "orchestrator":
                assert environment(service)[prefix + stage.upper()] == f"dns:///{stage}:{PORTS[stage]}"
        if name == "gateway":
            assert environment(service)[f"{prefix}ORCHESTRATOR"] == f"dns:///orchestrator:{PORTS['orchestrator']}"


@pytest.mark.parametrize(
    ("file", "gpus"), [("compose.yaml", {"${GPU:-0}"}), ("compose.gpus.yaml", {"${LLM_GPU:-0}", "${TOKEN2WAV_GPU:-1}"})]
)
def test_engines_have_their_gpus_and_nobody_else_has_one(file: str, gpus: set[str]) -> None:
    given = set()
    for name, service in services(file).items():
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        assert len(devices) == (1 if name in ("llm", "token2wav") else 0)
        given |= {number for device in devices for number in device["device_ids"]}
    assert given == gpus


def test_the_settings_that_come_along_are_those_of_the_doctor() -> None:
    gpu = Gpu("8 GB", (8, 9), "", 8188, 8188)
    recommendation = recommended(Machine((gpu,), None, 4, 0, 0, {}, None), 0).environ
    lines = (ROOT / "compose.env").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f"{name}={value}" for name, value in recommendation.items()
    ]


@pytest.mark.parametrize("file", COMPOSE)
def test_certificates_are_mounted_and_used_everywhere(file: str) -> None:
    added = yaml.safe_load((ROOT / "compose.tls.yaml").read_text(encoding="utf-8"))["services"]
    assert set(added) == set(PORTS)
    for name, service in services(file).items():
        (mount,) = added[name]["volumes"]
        folder = Path(mount["target"])
        assert mount["read_only"] is True
        prefix = f"COSYSERVE_{name.upper()}_"
        variables = {**environment(service), **added[name]["environment"], f"{prefix}LISTEN": "0.0.0.0:1"}
        if name in ("orchestrator", "gateway"):
            variables |= {f"{prefix}INSECURE": "true"}
        settings = load(SETTINGS[name], prefix, variables)
        client_ca = None if name in PUBLISHED else folder / "ca.crt"
        assert settings.served_files == CertificateFiles(folder / "tls.crt", folder / "tls.key", client_ca)
        if name == "orchestrator":
            assert settings.calls.files == CertificateFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        if name == "gateway":
            assert settings.calls.files == CertificateFiles(ca=folder / "ca.crt")


def test_the_example_of_step_audio2_has_three_decoders_of_one_name_and_gpus_of_their_own() -> None:
    """On top of compose.gpus.yaml, whose token2wav is the first of them."""
    added, first = services("compose.step-audio2.yaml"), services("compose.gpus.yaml")["token2wav"]
    decoders = {name: service for name, service in added.items() if name.startswith("token2wav")}
    assert sorted(decoders) == ["token2wav", "token2wav-2", "token2wav-3"]
    gpus = [first["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]]
    for name, service in decoders.items():
        weights = [mount for mount in service["volumes"] if isinstance(mount, dict)]
        variables = {**first["environment"], **service["environment"], "COSYSERVE_TOKEN2WAV_LISTEN": "0.0.0.0:50054"}
        settings = load(Token2WavSettings, "COSYSERVE_TOKEN2WAV_", variables)
        assert str(settings.decoder_model) == weights[-1]["target"]
        assert weights[-1]["read_only"] is True
        if name != "token2wav":
            assert service["build"] == first["build"]
            assert service["networks"] == {"default": {"aliases": ["token2wav"]}}
            gpus.append(service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"])
    assert gpus == [["${TOKEN2WAV_GPU:-1}"], ["${TOKEN2WAV_GPU_2:-2}"], ["${TOKEN2WAV_GPU_3:-3}"]]
    variables = {
        **environment(services("compose.gpus.yaml")["orchestrator"]),
        **added["orchestrator"]["environment"],
        "COSYSERVE_ORCHESTRATOR_LISTEN": "0.0.0.0:50051",
        "COSYSERVE_ORCHESTRATOR_INSECURE": "true",
    }
    most = load(OrchestratorSettings, "COSYSERVE_ORCHESTRATOR_", variables).max_streams
    taken = environment(services("compose.gpus.yaml")["llm"])["COSYSERVE_LLM_MAX_SEQUENCES"]
    assert most == int(taken) + LlmSettings.max_waiting


@pytest.mark.parametrize("file", COMPOSE)
def test_compose_itself_reads_the_file(file: str) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    environ = {**os.environ, "MODEL_DIR": "./models/demo"}
    done = subprocess.run(
        [program, "-f", file, "config"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(PORTS)
