"""Load the tokenizer of a model directory: byte-level BPE as published, or phonemes."""

from cosyserve.generations.model_pair import refuse_decoder_alone
from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.tokenizer import Tokenizer


def read_tokenizer(directory: ModelDirectory) -> Tokenizer:
    """Return the BPE tokenizer when the directory has `CosyVoice-BlankEN/vocab.json`, or else the
    phoneme tokenizer when it has `phonemes/symbols.json`.

    Raises ModelError naming the file when the tokenizer's files are missing or malformed, and for a
    directory that has none because it holds flow and vocoder alone.
    """
    refuse_decoder_alone(directory)
    # Only the tokenizer in use is imported: a phoneme model needs no BPE library.
    if (directory.path / "phonemes/symbols.json").exists() and not (
        directory.path / "CosyVoice-BlankEN/vocab.json"
    ).exists():
        from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer

        return PhonemeTokenizer(directory)
    from services.frontend.tokenizers.bpe import TextTokenizer

    return TextTokenizer(directory)
