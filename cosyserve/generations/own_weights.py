"""Whether a file of weights is of the generation of its directory, by a tensor that only that
generation has.
"""

from collections.abc import Mapping
from pathlib import Path

from cosyserve.errors import ModelError
from cosyserve.generations.generation import WeightMark
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.model_directory import ModelDirectory, Shaped


def require_own_weights(directory: ModelDirectory, path: Path, tensors: Mapping[str, Shaped]) -> None:
    """Raises ModelError naming both generations when `path`, which holds `tensors`, lacks the mark
    of the directory's generation and has that of another one. A file without any mark passes: what
    it lacks is for its loader to say.
    """
    own = generation_of(directory)
    if any(_has(tensors, mark) for mark in own.weight_marks if mark.file == path.name):
        return
    for other in GENERATIONS:
        if any(_has(tensors, mark) for mark in other.weight_marks if mark.file == path.name):
            raise ModelError(
                f"{path}: its tensors are those of {other.title}; the directory's yaml is of {own.title}, "
                "and a model directory holds one generation"
            )


def _has(tensors: Mapping[str, Shaped], mark: WeightMark) -> bool:
    return any(
        name.startswith(mark.tensor)
        and (mark.taps is None or (len(tensor.shape) == 3 and tensor.shape[-1] == mark.taps))
        for name, tensor in tensors.items()
    )
