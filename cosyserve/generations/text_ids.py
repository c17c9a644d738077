"""The ids of special tokens of the text tokenizer, for those that do not load the tokenizer.

Source: compatibility specification of CosyVoice2, section 2.3, of CosyVoice3, section 2.1.
"""

import json

from cosyserve.errors import ModelError
from cosyserve.generations.generation import Generation
from cosyserve.model_directory import ModelDirectory

VOCABULARY = "CosyVoice-BlankEN/vocab.json"


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
    path = directory.file(VOCABULARY)
    try:
        vocabulary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not valid json: {error}") from error
    if not isinstance(vocabulary, dict):
        raise ModelError(f"{path}: expected an object at the top")
    return len(vocabulary) + 1  # <|endoftext|> comes before the marks of a generation
