"""`python -m tools.make_demo_model [DIR]`: write the bundled model, a directory in the published layout that hums.

Its weights are drawn from names and one seed, so a second run writes the same tensors. They are stored in half precision.
"""

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.llm.config import read_config as read_llm_config
from services.token2wav.flow.weights import FlowConfig
from services.token2wav.vocoder.config import read_config as read_vocoder_config
from tools.hum import flow, language_model, layout, vocoder
from tools.hum.draws import Draws
from tools.hum.voices import voices

SEED = 20250
DEMO = Path(__file__).parents[1] / "models" / "demo"


def write(directory: Path) -> None:
    """Write every file of the model into `directory`, which is made where it does not exist."""
    directory.mkdir(parents=True, exist_ok=True)
    layout.write(directory)
    model, draws = ModelDirectory(directory), Draws(SEED)
    _save(directory / "llm.pt", language_model.weights(read_llm_config(model), draws))
    _save(directory / "flow.pt", flow.weights(FlowConfig.read(model), draws))
    _save(directory / "hift.pt", vocoder.weights(read_vocoder_config(model), draws))
    torch.save(voices(draws), directory / "spk2info.pt")


def _save(path: Path, weights: Mapping[str, Tensor]) -> None:
    torch.save({name: tensor.to(torch.float16).contiguous() for name, tensor in weights.items()}, path)


def checksums(directory: Path) -> dict[str, str]:
    """Path inside `directory` -> sha256, of every file that is not prose."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix != ".md")
    return {path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def manifest(directory: Path) -> str:
    """The entry of models/manifest.toml for `directory`."""
    lines = [
        "# What is in this folder, where it comes from, and its sha256.",
        "",
        "[demo]",
        'what = "random weights in the layout of CosyVoice2-0.5B; hums rather than speaks"',
        f'whence = "python -m tools.make_demo_model, seed {SEED}"',
        'license = "Apache-2.0"',
        "",
        "[demo.files]",
        *(f'"{name}" = "{digest}"' for name, digest in checksums(directory).items()),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.make_demo_model", description="Write the bundled model, which hums.")
    parser.add_argument("directory", type=Path, nargs="?", default=DEMO, help="where to; default models/demo, with its manifest")
    directory: Path = parser.parse_args(arguments).directory
    write(directory)
    if directory.resolve() == DEMO.resolve():
        (DEMO.parent / "manifest.toml").write_text(manifest(DEMO), encoding="utf-8")
    print(f"{directory}: {sum(path.stat().st_size for path in directory.rglob('*') if path.is_file()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
