"""What the frontend asks of a tokenizer, and of the incremental encoding of a text that still arrives."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Certain(NamedTuple):
    """Ids that no later text changes. words: those that they say, as `Tokenizer.spoken_words`,
    places counted in `ids`.
    """

    ids: list[int]
    words: Sequence[tuple[str, int, int]] = ()


class GrowingIds(Protocol):
    """The ids of one text that is told run by run, each run beginning with a blank or a mark. No
    run to come changes an id given.
    """

    @property
    def opening(self) -> tuple[int, ...]:
        """Ids in front of every sentence; not among those that `feed` and `finish` give."""
        ...

    def feed(self, run: str) -> Certain:
        """The ids that are certain with this run, all those of a word together."""
        ...

    def finish(self, run: str) -> Certain:
        """The ids that are left, with the last run."""
        ...


class Tokenizer(Protocol):
    """Text to token ids. Immutable, usable from any thread; encodes any text, and the same text
    always to the same ids.
    """

    def __len__(self) -> int:
        """How many tokens there are: ids are below it."""
        ...

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Ids of `text`; none when it holds nothing that this tokenizer can express. allow_special:
        parse `<|...|>` control tokens.
        """
        ...

    @property
    def is_phonemes(self) -> Callable[[str], bool] | None:
        """Whether a word of phonemes can be spoken between `placeholders.BEGIN` and
        `placeholders.END`; None for a tokenizer of written text."""
        ...

    def growing(self, *, allow_special: bool = False) -> GrowingIds:
        """For one text that arrives over time. allow_special: as in `encode`."""
        ...

    def spoken_words(self, text: str, *, allow_special: bool = False) -> list[tuple[str, int, int]]:
        """Words as they are spoken, each with the place of its first id in `encode` of the same and
        the number of its ids; none when ids do not tell words apart. Given phonemes are a word
        between slashes."""
        ...

    @property
    def languages(self) -> tuple[str, ...]:
        """Primary tags of the languages that it can express; none where it can express every
        text.
        """
        ...

    def unread(self, text: str) -> list[str]:
        """The stretches of `text`, without carriers, that `encode` leaves out though they have a
        meaning (`meaningful_characters`).
        """
        ...

    def id_of(self, token: str) -> int | None:
        """The id of one token, None when there is none of that name."""
        ...
