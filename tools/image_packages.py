"""`python3 image_packages.py --constraint FILE WHEEL`: install a wheel into an image with packages
of its own, and change none of those.

Every package that is installed is held at its version, and pins of FILE count only for packages
that are missing. At the end `pip check` may find nothing that it did not find before: images of
vendors have contradictions of their own. Only the standard library is imported, since this runs
before anything is installed.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

_RELEASE = re.compile(
    r"v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?\d*)*(-\d+)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    re.I,
)
"""A version that pip reads (PEP 440); packages of the distribution may have others, which pip could
not be held to.
"""


def plain(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """Versions by plain name, of the copy that Python imports where there are several."""
    versions: dict[str, str] = {}
    for distribution in distributions():
        if distribution.metadata["Name"]:
            versions.setdefault(plain(distribution.metadata["Name"]), distribution.version)
    return versions


def constraints(pins: str, present: Mapping[str, str]) -> str:
    """What pip is held to. pins: lines `name==version` and comments. Raises ValueError for any
    other line.
    """
    held = [
        f"{name}=={version}" for name, version in sorted(present.items()) if version and _RELEASE.fullmatch(version)
    ]
    for line in pins.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==\S+", line.strip())
        if match is None:
            raise ValueError(f"{line!r}: expected name==version")
        if plain(match[1]) not in present:
            held.append(line.strip())
    return "\n".join(held) + "\n"


def complaints() -> set[str]:
    """Lines of `pip check`; none where all packages go together."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    return set(done.stdout.splitlines()) if done.returncode else set()


def install(constraint: Path, wheels: Sequence[Path]) -> int:
    """The exit status: that of pip, or 1 where packages do not go together afterwards."""
    before, present = complaints(), installed()
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "held.txt"
        held.write_text(constraints(constraint.read_text(encoding="utf-8"), present), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-cache-dir",
            "--constraint",
            str(held),
            *map(str, wheels),
        ]
        status = subprocess.run(command, check=False).returncode
    if status:
        return status
    new = sorted(complaints() - before)
    sys.stderr.writelines(f"{line}\n" for line in new)
    return 1 if new else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Install a wheel next to the packages of an image.")
    parser.add_argument("--constraint", type=Path, required=True, help="pins for packages that are missing")
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    options = parser.parse_args(arguments)
    return install(options.constraint, options.wheels)


if __name__ == "__main__":
    sys.exit(main())
