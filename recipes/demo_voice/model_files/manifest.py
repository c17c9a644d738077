"""`manifest.toml` next to a bundled model: what its files are, where they come from, under which
licence, and their sha256.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path

FILE = "manifest.toml"
WHAT = "two small English voices in the layout of CosyVoice2-0.5B, trained on the synthetic speech of Kokoro-82M"
WHENCE = "the recipe recipes/demo_voice; last stage python -m recipes.demo_voice.export"
LICENSE = "Apache-2.0; pronunciations of phonemes/ also BSD-2-Clause (CMUdict), see NOTICE.md"


def checksums(directory: Path) -> dict[str, str]:
    """Path inside `directory` -> sha256, of every file that is not prose."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix != ".md")
    return {path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def text(name: str, files: Mapping[str, str]) -> str:
    """The manifest of a folder that holds the model `name` with these checksums."""
    lines = [
        "# What is in this folder, where it comes from, and its sha256.",
        "",
        f"[{name}]",
        f'what = "{WHAT}"',
        f'whence = "{WHENCE}"',
        f'license = "{LICENSE}"',
        "",
        f"[{name}.files]",
        *(f'"{path}" = "{digest}"' for path, digest in files.items()),
    ]
    return "\n".join(lines) + "\n"


def listed(directory: Path) -> list[str]:
    """The files that the manifest next to `directory` says are in it; none without a manifest."""
    path = directory.parent / FILE
    if not path.exists():
        return []
    return list(tomllib.loads(path.read_text(encoding="utf-8")).get(directory.name, {}).get("files", {}))


def write(directory: Path) -> None:
    """Write the manifest next to `directory`."""
    (directory.parent / FILE).write_text(text(directory.name, checksums(directory)), encoding="utf-8")
