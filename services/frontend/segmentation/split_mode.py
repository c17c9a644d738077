"""How whole texts are split for a model directory: the key `text.split` of its yaml, an extension
of ours.
"""

import enum

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory


class Split(enum.Enum):
    """The values of the key."""

    JOINED = "joined"
    """Short sentences are joined into segments of about 60 to 80 text tokens, as in the reference
    (compatibility specification section 2.2): for models that need some length to speak well.
    """
    SENTENCES = "sentences"
    """Sentence by sentence, as in streaming: for models that omit words when one utterance has
    several sentences.
    """


def split_mode(directory: ModelDirectory) -> Split:
    """Return the mode of a directory; JOINED when the key is missing, as in published ones. Raises
    ModelError for an invalid value.
    """
    section = directory.config().get("text", {})
    value = section.get("split", Split.JOINED.value) if isinstance(section, dict) else section
    try:
        return Split(value)
    except ValueError:
        allowed = " or ".join(split.value for split in Split)
        raise ModelError(f"{directory.path}: yaml key text.split is {value!r}, expected {allowed}") from None
