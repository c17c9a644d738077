"""Both distributions, built and installed into environments that hold nothing else."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.repository.test_files import tracked

ROOT = Path(__file__).parents[3]
SERVER_COMMANDS = {
    "up": [],
    "demo": [],
    "start": [],
    "model": ["inspect", "models/demo"],
    "verify": ["models/demo"],
    "accept": ["models/demo"],
}


def run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Without PYTHONPATH, by which the tree would be found."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(part) for part in command]
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=240)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    source = folder / "source"
    # A copy: setuptools leaves its build folders in the tree that it builds.
    for path in tracked():
        if str(path).startswith(
            ("cosyserve/", "services/", "tools/", "bench/", "recipes/", "packages/", "pyproject", "README")
        ):
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes((ROOT / path).read_bytes())
    built = run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".", "./packages/server",
        folder=source,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def environment(folder: Path, *wheels: Path) -> Path:
    """The folder of programs of a new virtual environment in which `wheels` are installed."""
    assert run(sys.executable, "-m", "venv", folder / "venv", folder=folder).returncode == 0
    programs = folder / "venv" / "bin"
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    installed = run(*pip, *wheels, folder=folder)
    assert installed.returncode == 0, installed.stderr
    assert run(programs / "python", "-m", "pip", "check", folder=folder).returncode == 0
    return programs


def tops(wheel: Path) -> set[str]:
    """Names that a wheel adds to what can be imported."""
    return {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_the_client_is_one_package_without_a_tensor_library(wheels: dict[str, Path], tmp_path: Path) -> None:
    assert tops(wheels["cosyserve"]) == {"cosyserve"}
    programs = environment(tmp_path, wheels["cosyserve"])
    listed = run(programs / "python", "-m", "pip", "list", "--format", "json", folder=tmp_path)
    names = {each["name"].lower() for each in json.loads(listed.stdout)}
    assert names.isdisjoint({"torch", "onnxruntime", "grpcio-reflection", "opentelemetry-sdk", "cosyserve-server"})
    assert run(programs / "cosyserve", "--version", folder=tmp_path).stdout.startswith("cosyserve 0.")
    said = run(programs / "cosyserve", "say", "Hello.", "-o", "x.wav", "--server", "127.0.0.1:9", folder=tmp_path)
    assert said.returncode == 1
    assert "127.0.0.1:9: nothing can be reached there" in said.stderr
    for command, arguments in SERVER_COMMANDS.items():
        refused = run(programs / "cosyserve", command, *arguments, folder=tmp_path)
        assert refused.returncode == 1
        assert refused.stderr == (
            f"cosyserve: {command} needs the package cosyserve-server, which is not installed here: "
            "pip install 'cosyserve-server[cpu]'\n"
        )


def test_the_server_brings_services_tools_and_the_plugin_of_vllm(wheels: dict[str, Path], tmp_path: Path) -> None:
    assert tops(wheels["cosyserve_server"]) == {"services", "tools", "bench", "recipes"}
    page = ROOT / "services" / "gateway" / "page"
    files = {str(path.relative_to(ROOT)) for path in page.rglob("*.*") if "__pycache__" not in path.parts}
    files |= {str(path) for path in tracked() if path.suffix == ".cu" and path.parts[0] == "services"}
    assert files <= set(zipfile.ZipFile(wheels["cosyserve_server"]).namelist())
    programs = environment(tmp_path, *wheels.values())
    script = (
        "import importlib.metadata as m; import services.orchestrator.settings; "
        "print([p.value for p in m.entry_points(group='vllm.general_plugins')])"
    )
    found = run(programs / "python", "-c", script, folder=tmp_path)
    assert found.stdout == "['services.llm.hosted.vllm.vllm_plugin:register']\n", found.stderr
    missing = run(programs / "cosyserve", "model", "inspect", "nothing", folder=tmp_path)
    assert missing.stderr.startswith("cosyserve: model inspect needs torch and safetensors: pip install "), missing
