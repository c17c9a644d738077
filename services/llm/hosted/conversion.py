"""A directory that `cosyserve model convert`, or `build llm`, has made: what it is, of which model,
and what its ids mean.
"""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from cosyserve.engines.engine_lock import engine_held
from cosyserve.errors import ModelError
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, VOCABULARY_FILE, ExtendedVocabulary, side_file

MANIFEST = "manifest.json"
HUGGING_FACE, VLLM_EXPORT = "llm-hf", "llm-vllm"
"""Kinds that are served as they are."""


@dataclass(frozen=True)
class Conversion:
    """kind: HUGGING_FACE, VLLM_EXPORT and so on. precision: of its weights. head_bias: None where
    the head itself has it.
    """

    directory: Path
    kind: str
    precision: str
    vocabulary: ExtendedVocabulary
    head_bias: Path | None

    @classmethod
    def open(cls, directory: Path, model_hash: str, kinds: tuple[str, ...]) -> "Conversion":
        """The conversion of this model. Raises ModelError when it is missing, of another model or
        of a kind that is not one of `kinds`.
        """
        path = directory / MANIFEST
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            identity = told["identity"]
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


def hold_directory(directory: Path) -> contextlib.ExitStack:
    """Until it is closed nobody removes the directory. Raises ModelError when it is gone."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(engine_held(directory))
        except OSError as error:
            raise ModelError(f"{directory}: cannot be held while it is served: {error}") from error
        return held.pop_all()


def side_files(directory: Path) -> tuple[ExtendedVocabulary, Path]:
    """Numbering and head bias beside a conversion or an engine. Raises ModelError."""
    return ExtendedVocabulary.load(side_file(directory, VOCABULARY_FILE)), side_file(directory, HEAD_BIAS_FILE)
