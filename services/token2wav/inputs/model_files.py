"""Reads the yaml sections and the `torch.save`d tensor files of a model directory without executing
code; errors name the file, the entry and what is wrong with it.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory, Node


class YamlSection:
    """A section of the yaml, by dotted key. Reading raises ModelError for a key that is missing or
    has the wrong kind of value.
    """

    def __init__(self, directory: ModelDirectory, name: str) -> None:
        self._path, self._name = directory.path, name
        self._values = directory.section(name)

    def __getitem__(self, key: str) -> Any:
        value: Any = self._values
        for part in key.split("."):
            value = value.arguments if isinstance(value, Node) else value
            if not isinstance(value, dict) or part not in value:
                raise ModelError(f"{self._path}: the yaml has no key {self._name}.{key}")
            value = value[part]
        return value

    def require(self, fixed: Mapping[str, Any]) -> None:
        """Raise ModelError unless each of these keys has the value that the arithmetic assumes."""
        for key, value in fixed.items():
            if self[key] != value:
                raise self.wrong(key, self[key], f"; only {value!r} is implemented")

    def number(self, key: str) -> float:
        """An int or a float, as it is written."""
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, value, ", expected a number")
        return value

    def size(self, key: str) -> int:
        """A positive integer."""
        return self._sizes(key, [self[key]], "a positive integer")[0]

    def sizes(self, key: str) -> tuple[int, ...]:
        """A list of positive integers."""
        return self._sizes(key, self[key], "a list of positive integers")

    def size_lists(self, key: str) -> tuple[tuple[int, ...], ...]:
        """A list of such lists."""
        expected, value = "lists of positive integers", self[key]
        if not isinstance(value, Sequence):
            raise self.wrong(key, value, f", expected {expected}")
        return tuple(self._sizes(key, each, expected) for each in value)

    def wrong(self, key: str, value: Any, why: str) -> ModelError:
        """The error for a key whose value cannot be used."""
        return ModelError(f"{self._path}: the yaml has {self._name}.{key} = {value!r}{why}")

    def _sizes(self, key: str, value: Any, expected: str) -> tuple[int, ...]:
        if not isinstance(value, Sequence) or not all(type(item) is int and item > 0 for item in value):
            raise self.wrong(key, self[key], f", expected {expected}")
        return tuple(value)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a `torch.save`d dictionary by name, on the CPU, all floating point. Raises
    ModelError naming file and entry.
    """
    try:
        with warnings.catch_warnings():
            # The warning is about an unusual pickle protocol; a file that cannot be read raises.
            warnings.simplefilter("ignore", UserWarning)
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # for a damaged file the unpickler raises nearly any class
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ModelError(
            f"{path}: not a file of tensors that torch.load(weights_only=True) accepts: {type(error).__name__}: "
            f"{reason}"
        ) from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: holds a {type(content).__name__}, expected a mapping of names to tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ModelError(f"{path}: entry {name!r} is a {type(value).__name__}, expected a tensor")
        if not value.is_floating_point():
            raise ModelError(f"{path}: tensor {name} is {value.dtype}, expected a floating-point type")
    return content
