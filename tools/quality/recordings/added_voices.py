"""A model directory with more voices than it came with, the files of the one it is made from linked
and left alone.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from services.frontend.voices.speaker_file import FILE, entry_of
from services.frontend.voices.voice import Voice


def with_voices(model: Path, voices: Iterable[Voice], folder: Path) -> Path:
    """Fill the empty `folder` with links to everything in `model`, and a `spk2info.pt` that holds
    the voices too; `folder` again.

    A new voice takes the place of one of the same id.
    """
    known: dict[str, dict[str, Tensor]] = {}
    for path in model.resolve().iterdir():
        if path.name == FILE:
            known = torch.load(path, map_location="cpu", weights_only=True)
        else:
            (folder / path.name).symlink_to(path)
    torch.save(known | {voice.id: entry_of(voice) for voice in voices}, folder / FILE)
    return folder
