"""The tokenizer that a model directory brings: byte-level BPE as published, or phonemes."""

from typing import Protocol

from cosyserve.model_directory import ModelDirectory


class Tokenizer(Protocol):
    """Text to token ids. Immutable, usable from any thread; encodes any text, and the same text always to the same ids."""

    def __len__(self) -> int:
        """How many tokens there are: ids are below it."""
        ...

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Ids of `text`; none when it holds nothing that this tokenizer can express. allow_special: parse `<|...|>` control tokens."""
        ...

    def spoken_words(self, text: str) -> list[tuple[str, int, int]]:
        """Words as they are spoken, each with the place of its first id in `encode(text)` and the number of its ids; none when ids do not
        tell words apart."""
        ...

    def id_of(self, token: str) -> int | None:
        """The id of one token, None when there is none of that name."""
        ...


def read_tokenizer(directory: ModelDirectory) -> Tokenizer:
    """The BPE one when the directory has `CosyVoice-BlankEN/vocab.json`, the phoneme one when it has `phonemes/symbols.json`.

    Raises ModelError naming the file when the tokenizer's files are missing or malformed.
    """
    # Only the one that is used gets imported: a phoneme model needs no BPE library.
    if (directory.path / "phonemes/symbols.json").exists() and not (directory.path / "CosyVoice-BlankEN/vocab.json").exists():
        from services.frontend.phonemes.tokenizer import PhonemeTokenizer

        return PhonemeTokenizer(directory)
    from services.frontend.tokenizer import TextTokenizer

    return TextTokenizer(directory)
