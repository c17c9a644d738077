"""How a model directory wants a whole text cut into utterances: the key `text.split` of its yaml,
which is our own.
"""

import enum

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory


class Split(enum.Enum):
    """Values are those of the key."""

    JOINED = "joined"
    """Short sentences are joined to segments of about 60 to 80 text tokens, as the reference does
    (compatibility specification section 2.2): for models that need some length to speak well."""
    SENTENCES = "sentences"
    """Sentence by sentence, as text is spoken that is still being written: for models that leave
    out words of several in one utterance.
    """


def split_mode(directory: ModelDirectory) -> Split:
    """JOINED for a directory that does not say, as published ones do not. Raises ModelError for a
    value that is none.
    """
    section = directory.config().get("text", {})
    value = section.get("split", Split.JOINED.value) if isinstance(section, dict) else section
    try:
        return Split(value)
    except ValueError:
        allowed = " or ".join(split.value for split in Split)
        raise ModelError(f"{directory.path}: yaml key text.split is {value!r}, expected {allowed}") from None
