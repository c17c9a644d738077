"""What a voice depends on in a model directory: the networks that listened to it, and the tokenizer
that wrote down its transcript.
"""

import hashlib

from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.prompt_reader import SPEAKER_ENCODER, SPEECH_TOKENIZER

_FILES = (
    SPEECH_TOKENIZER,
    SPEAKER_ENCODER,
    "CosyVoice-BlankEN/vocab.json",
    "CosyVoice-BlankEN/merges.txt",
    "phonemes/symbols.json",
)


def voice_model(directory: ModelDirectory) -> str:
    """Name of all model directories whose voices are of use to each other: 16 hexadecimal digits.
    Voices made for another model are arrays without meaning to this one, so each has a shelf of its
    own. Reads the files, half a gigabyte of published weights in about a second."""
    digest = hashlib.sha256()
    for name in _FILES:
        path = directory.path / name
        if path.exists():
            with path.open("rb") as file:
                digest.update(name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def can_listen(directory: ModelDirectory) -> bool:
    """Whether the directory has the two networks that listen."""
    return all((directory.path / name).exists() for name in (SPEECH_TOKENIZER, SPEAKER_ENCODER))
