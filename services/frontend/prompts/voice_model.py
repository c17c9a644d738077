"""The parts of a model directory that a voice depends on: the prompt networks, and the tokenizer of
its transcript.
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
    """Name shared by all model directories whose voices are interchangeable: 16 hexadecimal digits.
    Voices of another model are meaningless arrays to this one, so each model has its own folder in
    the storage. Reads the files; half a gigabyte of published weights takes about a second.
    """
    digest = hashlib.sha256()
    for name in _FILES:
        path = directory.path / name
        if path.exists():
            with path.open("rb") as file:
                digest.update(name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def has_prompt_networks(directory: ModelDirectory) -> bool:
    """Whether the directory has the two prompt networks."""
    return all((directory.path / name).exists() for name in (SPEECH_TOKENIZER, SPEAKER_ENCODER))
