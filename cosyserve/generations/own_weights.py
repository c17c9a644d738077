"""Whether a file of weights is of the generation of its directory, or of its decoder, by a tensor
that only that one has.
"""

from collections.abc import Mapping
from pathlib import Path

from cosyserve.errors import ModelError
from cosyserve.generations.generation import WeightMark
from cosyserve.generations.reading import GENERATIONS
from cosyserve.generations.separate_decoder import DECODERS, Token2WavNetworks, token2wav_networks
from cosyserve.model_directory import ModelDirectory, Shaped


def require_own_weights(directory: ModelDirectory, path: Path, tensors: Mapping[str, Shaped]) -> None:
    """Raises ModelError naming both when `path`, which holds `tensors`, lacks the mark of the
    directory's generation or decoder and has that of another one. A file without any mark passes:
    what it lacks is for its loader to say.
    """
    own = token2wav_networks(directory)
    known: tuple[Token2WavNetworks, ...] = (*GENERATIONS, *DECODERS)
    if any(_has(tensors, mark) for mark in own.weight_marks if mark.file == path.name):
        return
    for other in known:
        if any(_has(tensors, mark) for mark in other.weight_marks if mark.file == path.name):
            raise ModelError(
                f"{path}: its tensors are those of {other.title}; the directory's yaml is of {own.title}, "
                "and a model directory holds one model"
            )


def _has(tensors: Mapping[str, Shaped], mark: WeightMark) -> bool:
    return any(
        name.startswith(mark.tensor)
        and (mark.taps is None or (len(tensor.shape) == 3 and tensor.shape[-1] == mark.taps))
        for name, tensor in tensors.items()
    )
