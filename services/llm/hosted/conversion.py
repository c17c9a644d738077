"""A directory that `cosyserve model convert` or `build llm` has written: its kind, its source model
and its vocabulary.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import ModelError
from cosyserve.file_lock import shared_engine_lock
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, VOCABULARY_FILE, ExtendedVocabulary, side_file

MANIFEST = "manifest.json"
HUGGING_FACE, VLLM_EXPORT = "llm-hf", "llm-vllm"
"""Kinds that an engine loads directly."""


@dataclass(frozen=True)
class Conversion:
    """kind: HUGGING_FACE, VLLM_EXPORT and so on. precision: of its weights. head_bias: file of the
    head's bias, None where the head includes it.
    """

    directory: Path
    kind: str
    precision: str
    vocabulary: ExtendedVocabulary
    head_bias: Path | None

    @classmethod
    def open(cls, directory: Path, model_hash: str, kinds: tuple[str, ...]) -> "Conversion":
        """Open the conversion of this model. Raises ModelError when it is missing, of another
        model, or of a kind that is not in `kinds`.
        """
        path = directory / MANIFEST
        try:
            identity = json.loads(path.read_text(encoding="utf-8"))["identity"]
            kind, source, precision = (str(identity[name]) for name in ("kind", "source", "precision"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{path}: no conversion of ours ({type(error).__name__}); make one: cosyserve model convert"
            ) from error
        if kind not in kinds:
            raise ModelError(f"{directory}: is {kind}, served can be {', '.join(kinds)}")
        if source != model_hash:
            raise ModelError(f"{directory}: was made of model {source}, this is {model_hash}; convert the model again")
        if kind == VLLM_EXPORT:
            return cls(directory, kind, precision, ExtendedVocabulary.load(directory / VOCABULARY_FILE), None)
        return cls(directory, kind, precision, *side_files(directory))


@contextlib.contextmanager
def held_to_load(directory: Path, library: str) -> Iterator[Callable[[], None]]:
    """Lock the directory against removal, for the block that loads an engine from it and after it
    until the result is called. library: name and release. Raises ModelError when the directory does
    not exist, and for any error of the block, which also releases the lock.
    """
    lock = contextlib.ExitStack()
    try:
        lock.enter_context(shared_engine_lock(directory))
    except OSError as error:
        raise ModelError(f"{directory}: cannot be held while it is served: {error}") from error
    try:
        yield lock.close
    except Exception as error:
        lock.close()
        raise ModelError(f"{directory}: {library} cannot load it: {type(error).__name__}: {error}") from error


def side_files(directory: Path) -> tuple[ExtendedVocabulary, Path]:
    """Vocabulary and head bias of a conversion or an engine. Raises ModelError."""
    return ExtendedVocabulary.load(side_file(directory, VOCABULARY_FILE)), side_file(directory, HEAD_BIAS_FILE)
