"""The interfaces of a tokenizer and of its incremental encoder."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from services.frontend.tokenizers.inpainting.pronunciation import PronunciationMarks
from services.frontend.tokenizers.placeholders import Marks


class FinalIds(NamedTuple):
    """Ids that no later text changes. words: those of the ids, as in `Tokenizer.spoken_words`, with
    indices into `ids`.
    """

    ids: list[int]
    words: Sequence[tuple[str, int, int]] = ()


class IncrementalEncoder(Protocol):
    """Encodes one text that arrives run by run; each run begins with a blank or a mark. Later runs
    never change ids that were returned.
    """

    @property
    def opening(self) -> tuple[int, ...]:
        """Ids at the start of every sentence; `feed` and `finish` do not return them."""

    def feed(self, run: str) -> FinalIds:
        """The ids that this run makes final; the ids of a word come together."""

    def finish(self, run: str) -> FinalIds:
        """The remaining ids, with the last run."""


class Tokenizer(Protocol):
    """Text to token ids. Immutable and thread-safe; encodes any text, deterministically."""

    def __len__(self) -> int:
        """The number of tokens: ids are smaller."""

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Ids of `text`; none when it holds nothing that this tokenizer can express. allow_special:
        parse `<|...|>` control tokens.
        """

    @property
    def is_phonemes(self) -> Callable[[str], bool] | None:
        """Returns whether a word consists of phonemes that may be given between
        `placeholders.BEGIN` and `placeholders.END`; None for a tokenizer of written text.
        """

    @property
    def marks(self) -> Marks:
        """The special tokens that are parsed in every text, or left out of it."""

    @property
    def pronunciation_marks(self) -> PronunciationMarks | None:
        """How pronunciations are written into a text as marks; None where there are no marks for
        them.
        """

    def incremental_encoder(self, *, allow_special: bool = False) -> IncrementalEncoder:
        """An encoder of one text that arrives over time. allow_special: as in `encode`."""

    def spoken_words(self, text: str, *, allow_special: bool = False) -> list[tuple[str, int, int]]:
        """Words as they are spoken, each with the index of its first id in `encode` of the same
        text and the number of its ids; empty for a text without words. Given phonemes are a word
        between slashes. A tokenizer of written text takes a stretch between blanks that has no
        English reading for one word.
        """

    @property
    def languages(self) -> tuple[str, ...]:
        """Primary tags of the languages that it can express; empty where it can express every
        text.
        """

    def unread(self, text: str) -> list[str]:
        """The spans of `text`, without placeholders, that `encode` leaves out although they have a
        meaning (`characters.has_meaning`).
        """

    def id_of(self, token: str) -> int | None:
        """The id of one token, None when it does not exist."""
