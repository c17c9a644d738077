"""`python -m tools.release.version [--set X.Y.Z]`: the version, which `pyproject.toml` states and
every other place repeats.

Without --set: print it, or the places that say another one. Exit status: 0 all agree, 1 some do
not, 2 wrong usage.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = "pyproject.toml"
NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


@dataclass(frozen=True)
class Place:
    """file: relative to the root. pattern: what surrounds the version there, which its group is.
    count: how often it is there.
    """

    file: str
    pattern: str
    count: int = 1

    def found(self, root: Path = ROOT) -> list[str]:
        """The versions that stand there."""
        return re.findall(self._expression, (root / self.file).read_text(encoding="utf-8"), re.MULTILINE)

    def write(self, version: str, root: Path = ROOT) -> None:
        """Put `version` there. Raises ValueError where the file has not as many as it should."""
        path = root / self.file
        text, replaced = re.subn(
            self._expression,
            lambda match: match[0].replace(match[1], version),
            path.read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        if replaced != self.count:
            raise ValueError(f"{self.file}: {self.count} versions are expected in {self.pattern}, {replaced} are there")
        path.write_text(text, encoding="utf-8")

    @property
    def _expression(self) -> str:
        return self.pattern.replace("VERSION", f"({NUMBER})")


PLACES = (
    Place(SOURCE, r'^version = "VERSION"$'),
    Place("packages/server/pyproject.toml", r'^version = "VERSION"$'),
    # The server takes the client of its own release.
    Place("packages/server/pyproject.toml", r'"cosyserve==VERSION"'),
    Place("packages/server/pyproject.toml", r'"cosyserve\[audio\]==VERSION"', 2),
    Place("k8s/chart/Chart.yaml", r"^version: VERSION$"),
    Place("k8s/chart/Chart.yaml", r"^appVersion: \"?VERSION\"?$"),
    Place("compose.services.yaml", r"\$\{COSYSERVE_TAG:-VERSION\}", 5),
    Place("Dockerfile", r"-t cosyserve-token2wav-cpu:VERSION \."),
)


EXAMPLES, IMAGE = "k8s/examples", r"\bcosyserve-[a-z0-9-]+:VERSION"
"""Folder of manifests that are read as they are, and how an image of ours stands in them."""


def places(root: Path = ROOT) -> list[Place]:
    """PLACES, and the manifests that name images of ours."""
    manifests = [Place(path.relative_to(root).as_posix(), IMAGE) for path in sorted((root / EXAMPLES).rglob("*.yaml"))]
    return [*PLACES, *(replace(one, count=len(found)) for one in manifests if (found := one.found(root)))]


def current(root: Path = ROOT) -> str:
    """The version that SOURCE states."""
    stated: str = tomllib.loads((root / SOURCE).read_text(encoding="utf-8"))["project"]["version"]
    return stated


def disagreements(root: Path = ROOT) -> list[str]:
    """A line for each place that says something else, or not as often as it should."""
    version = current(root)
    return [
        f"{place.file}: {place.pattern} has {', '.join(place.found(root)) or 'no version'}, "
        f"{SOURCE} says {version}{f' (expected {place.count} times)' if place.count > 1 else ''}"
        for place in places(root)
        if place.found(root) != [version] * place.count
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release.version", description=__doc__)
    parser.add_argument("--set", metavar="X.Y.Z", help="write this version everywhere")
    options = parser.parse_args(arguments)
    if options.set is not None:
        if not re.fullmatch(NUMBER, options.set):
            parser.error(f"{options.set!r} is no version such as 0.3.0 or 0.3.0rc1")
        for place in places():
            place.write(options.set)
    wrong = disagreements()
    print("\n".join(wrong) if wrong else current())
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
