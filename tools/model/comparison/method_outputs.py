"""Noting what the methods of the torch path hand on while it computes."""

import contextlib
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

Method = tuple[type, str]
"""A class, and the name of a method of it."""
Outputs = list[tuple[Method, NDArray[Any]]]
"""What each call of a method handed on, in the order of computation."""


@contextlib.contextmanager
def recorded_outputs(*kinds: Method) -> Iterator[Outputs]:
    """Note the results of a method of each class while inside."""
    outputs: Outputs = []
    originals = [(kind, method, getattr(kind, method)) for kind, method in kinds]

    def hook(kind: type, method: str, plain: Any) -> None:
        def call(*arguments: Any, **named: Any) -> Any:
            result = plain(*arguments, **named)
            outputs.append(((kind, method), result.detach().numpy().copy()))
            return result

        setattr(kind, method, call)

    for kind, method, plain in originals:
        hook(kind, method, plain)
    try:
        yield outputs
    finally:
        for kind, method, plain in originals:
            setattr(kind, method, plain)
