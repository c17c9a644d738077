"""`python -m tools.model.cut_prompts DIR`: cut the decoder's prompts in a model directory's
`spk2info.pt` for an earlier first sound.

For each voice in the zero-shot layout it prints how many speech tokens an utterance needed before
its first audible sample, and needs now. The speech-token model's prompt and transcript stay whole.
A voice that is cut, or too short, is left as it is. Exit status: 0 done, 1 the file is missing or
malformed, 2 bad arguments.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.voices.speaker_file import FILE, cut_entry
from services.frontend.voices.voice import tokens_before_sound

_TOKENS = "flow_prompt_speech_token"


def cut_file(path: Path, generation: Generation) -> list[str]:
    """Rewrite the file, whole or not at all; returns a line for each voice. generation: of the
    model that speaks them. Raises OSError, ValueError naming voice and field.
    """
    speakers = torch.load(path, map_location="cpu", weights_only=True)
    lines, cut = [], {}
    for name, entry in speakers.items():
        try:
            cut[name] = cut_entry(entry, generation)
        except ValueError as error:
            raise ValueError(f"{path}: voice {name!r}: {error}") from error
        if _TOKENS in entry:
            before, after = (tokens_before_sound(each[_TOKENS].numel(), generation) for each in (entry, cut[name]))
            lines.append(f"{name}: {after} speech tokens before the first audible sample instead of {before}")
    aside = path.with_name(f".{path.name}.new")
    torch.save(cut, aside)
    os.replace(aside, path)  # noqa: PTH105 - within one folder
    return lines


def _generation(model: Path) -> Generation:
    """Of the model directory; CosyVoice2 for a file of voices without a yaml."""
    described = any((model / name).exists() for each in GENERATIONS for name in each.yaml_names)
    return generation_of(ModelDirectory(model)) if described else COSYVOICE2


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.model.cut_prompts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("model", type=Path, metavar="DIR", help=f"model directory with a {FILE}")
    options = parser.parse_args(argv)
    try:
        print("\n".join(cut_file(options.model / FILE, _generation(options.model))))
    except (ModelError, OSError, ValueError) as error:
        print(f"cut_prompts: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
