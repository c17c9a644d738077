"""The tokenizer that a model directory contains: byte-level BPE as published, or phonemes."""

from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.tokenizer import Tokenizer


def read_tokenizer(directory: ModelDirectory) -> Tokenizer:
    """The BPE one when the directory has `CosyVoice-BlankEN/vocab.json`, the phoneme one when it
    has `phonemes/symbols.json`.

    Raises ModelError naming the file when the tokenizer's files are missing or malformed.
    """
    # Only the one that is used gets imported: a phoneme model needs no BPE library.
    if (directory.path / "phonemes/symbols.json").exists() and not (
        directory.path / "CosyVoice-BlankEN/vocab.json"
    ).exists():
        from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer

        return PhonemeTokenizer(directory)
    from services.frontend.tokenizers.bpe import TextTokenizer

    return TextTokenizer(directory)
