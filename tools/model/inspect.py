"""`python -m tools.model.inspect DIR`: what a model directory, or a conversion of one, holds and
what serving it needs.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cosyserve.commands.terminal.output import Parser

from cosyserve.engines.engine_cache import EngineCache, default_directory
from cosyserve.errors import ModelError
from tools.model.inspect import describe_conversion, describe_model
from tools.model.output.command import run
from tools.model.output.complete_directory import read_manifest
from tools.model.output.progress import in_units


def describe(path: Path, cache: EngineCache, *, quick: bool = False) -> dict[str, Any]:
    """Everything that is known of a directory. quick: without hashes. Raises ModelError."""
    if not path.is_dir():
        raise ModelError(f"{path}: no such directory")
    if (path / "llm.pt").exists() or (path / "flow.pt").exists():
        return describe_model(path, cache, quick=quick)
    if read_manifest(path) is not None:
        return describe_conversion(path, quick=quick)
    raise ModelError(f"{path}: neither a CosyVoice2 model directory nor a conversion of one")


def render(description: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{description['directory']}: {description['kind']}, {in_units(description['bytes'])}"]
    for title in (
        "identity",
        "llm",
        "vocabulary",
        "sampling",
        "head_bias",
        "token2wav",
        "voices",
        "memory",
        "engines",
        "problems",
    ):
        part = description.get(title)
        if isinstance(part, dict):
            lines += ["", title.replace("_", " ")]
            width = max((len(key) for key in part), default=0)
            lines += [f"  {key.replace('_', ' '):<{width}}  {_value(key, value)}" for key, value in part.items()]
        elif isinstance(part, list) and part:
            lines += ["", title, *(f"  {entry}" for entry in part)]
    lines += ["", "files"]
    width = max((len(name) for name in description["files"]), default=0)
    for name, facts in description["files"].items():
        types = ", ".join(f"{count} {kind}" for kind, count in facts.get("dtypes", {}).items())
        held = f"  {facts['tensors']} tensors ({types}), {facts['values']:,} values" if "tensors" in facts else ""
        lines.append(f"  {name:<{width}}  {in_units(facts['bytes']):>9}{held}")
    return "\n".join(lines)


def _value(key: str, value: object) -> str:
    if "bytes" in key and isinstance(value, int):
        return in_units(value)
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_value(name, entry)}" for name, entry in value.items())
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="cosyserve model inspect", description="Say what a directory holds, and what serving it needs."
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="model directory, or a conversion of one")
    parser.add_argument(
        "--engines", type=Path, default=None, metavar="DIR", help=f"engine cache (default: {default_directory()})"
    )
    parser.add_argument("--quick", action="store_true", help="no hashes: prints neither the identity nor the engines")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    description = describe(options.directory, EngineCache(options.engines or default_directory()), quick=options.quick)
    print(json.dumps(description) if options.json else render(description))
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
