"""Which generation a model directory holds: by the name of its yaml and by the classes that the
yaml names, which have to agree; and the ids of special tokens of its text tokenizer, for those
that do not load the tokenizer (compatibility specification of CosyVoice2, section 2.3, of
CosyVoice3, section 2.1).
"""

from collections.abc import Sequence
from typing import Any

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import Generation
from cosyserve.model_directory import DECODER_YAML, ModelDirectory, Node, read_object

GENERATIONS: tuple[Generation, ...] = (COSYVOICE2, COSYVOICE3)
VOCABULARY = "CosyVoice-BlankEN/vocab.json"


def generation_of(directory: ModelDirectory, known: Sequence[Generation] = GENERATIONS) -> Generation:
    """The generation of a model directory, one of `known`.

    Raises ModelError if the directory has no yaml of any generation or those of several, or if the
    yaml names a class of another generation: the error then says which section and which class.
    """
    found = [each for each in known if any((directory.path / name).exists() for name in each.yaml_names)]
    if not found:
        names = ", ".join(name for each in known for name in each.yaml_names)
        alone = f"; with {DECODER_YAML} it holds flow and vocoder alone, for token2wav beside such a directory"
        raise ModelError(
            f"{directory.path}: none of {names} is there; a model directory needs one"
            + (alone if (directory.path / DECODER_YAML).exists() else "")
        )
    if len(found) > 1:
        names = " and ".join(_yaml_of(directory, each) for each in found)
        raise ModelError(
            f"{directory.path}: {names} are there, of {' and '.join(each.title for each in found)}; "
            "a model directory holds one generation"
        )
    (generation,) = found
    config = directory.config()
    for section, expected in generation.classes:
        named = _class(config.get(section))
        if named not in (None, expected):
            other = next((each.title for each in known if (section, named) in each.classes), None)
            raise ModelError(
                f"{directory.path / _yaml_of(directory, generation)}: {section} is a {named}"
                + (f", of {other}" if other else "")
                + f"; {generation.title} has a {expected}"
            )
    return generation


def _yaml_of(directory: ModelDirectory, generation: Generation) -> str:
    return next(name for name in generation.yaml_names if (directory.path / name).exists())


def _class(section: Any) -> str | None:
    """The class of a section, without its package; None for a plain mapping."""
    return section.path.rpartition(".")[2] if isinstance(section, Node) else None


def end_of_prompt_id(directory: ModelDirectory, generation: Generation) -> int:
    """The id of the mark that ends the system part. Raises ModelError naming the vocabulary when it
    is missing or malformed.
    """
    return _first_mark(directory) + generation.text_marks.index(generation.prompt.end_mark)


def text_id_count(directory: ModelDirectory, generation: Generation) -> int:
    """The number of ids of the tokenizer, marks included. Raises ModelError as
    `end_of_prompt_id`.
    """
    return _first_mark(directory) + len(generation.text_marks)


def _first_mark(directory: ModelDirectory) -> int:
    return len(read_object(directory.file(VOCABULARY))) + 1  # <|endoftext|> comes before the marks of a generation
