"""An image's own packages keep their versions, and a wheel that does not go with them stops the
build.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import image_packages
from tools.image_packages import constraints, plain

ROOT = Path(__file__).parents[3]


def test_pins_count_for_what_is_missing_alone() -> None:
    held = constraints(
        "# a comment\n\ngrpcio==1.71.2\nOpenTelemetry_API==1.31.1\nzipp==3.23.0\n",
        {"opentelemetry-api": "1.40", "torch": "2.8.0a0+nv"},
    )
    assert held.split() == ["opentelemetry-api==1.40", "torch==2.8.0a0+nv", "grpcio==1.71.2", "zipp==3.23.0"]
    with pytest.raises(ValueError, match="expected name==version"):
        constraints("grpcio>=1.71.2", {})


def test_the_pins_of_the_image_can_be_read() -> None:
    held = constraints((ROOT / "constraints-trtllm.txt").read_text(encoding="utf-8"), {"protobuf": "6.1"})
    assert "protobuf==6.1" in held.split()
    assert "protobuf==5.29.6" not in held
    assert "grpcio-health-checking==1.71.2" in held.split()
    assert plain("importlib_metadata") == plain("Importlib-Metadata")


def wheel(folder: Path, name: str, version: str, requires: str = "") -> Path:
    path, facts = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": "",
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Python of an environment that has `theirs` 1.0 and a contradiction of its own; newer wheels
    lie in `index`.
    """
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "image"], check=True)
    python, index = tmp_path / "image" / "bin" / "python", tmp_path / "index"
    index.mkdir()
    base = [wheel(tmp_path, "theirs", "1.0"), wheel(tmp_path, "odd", "1.0", "absent")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *base], check=True)
    for version in ("1.0", "2.0"):
        wheel(index, "theirs", version)
        wheel(index, "added", version)
    return python


def added(image: Path, requires: str) -> tuple[int, dict[str, str]]:
    """Exit status of adding a wheel that requires this, and what is installed afterwards."""
    folder = image.parents[2]
    (folder / "pins.txt").write_text("theirs==2.0\nadded==1.0\n")
    ours = wheel(folder, "ours", "1.0", requires)
    environ = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder / "index"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PATH": "/usr/bin:/bin",
    }
    command = [image, image_packages.__file__, "--constraint", folder / "pins.txt", ours]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    listed = subprocess.run(
        [image, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    ).stdout
    return done.returncode, dict(line.split("==") for line in listed.split())


def test_what_is_there_stays_and_what_is_missing_comes_as_pinned(image: Path) -> None:
    status, packages = added(image, "added")
    assert status == 0
    assert (packages["theirs"], packages["added"], packages["ours"]) == ("1.0", "1.0", "1.0")


def test_a_wheel_that_wants_another_version_of_theirs_stops_the_build(image: Path) -> None:
    status, packages = added(image, "theirs>=2.0")
    assert status != 0
    assert packages["theirs"] == "1.0"
    assert "ours" not in packages
