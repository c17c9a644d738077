"""A request as the pipeline sees it: checked, defaults filled in, nothing of the wire left."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

from cosyserve import spec
from services.orchestrator.speech.conditioning import Prompting


@dataclass(frozen=True)
class Utterance:
    """What is to be said and how. `profile`, `growth` and `encoding` carry the numbers of their
    protobuf enums.
    """

    text: str
    prompting: Prompting
    language_code: str
    seed: int
    speed: float
    profile: int
    first_hop_tokens: int
    growth: int
    max_hop_tokens: int
    encoding: int
    sample_rate: int
    start_sample: int = 0
    """At `sample_rate`, over the whole utterance."""
    engine: str = ""
    """Name of the engines that must speak; empty: any."""
    allow_control_tokens: bool = False
    pronunciations: Mapping[str, str] = field(default_factory=dict)
    """Written form to respelling or /phonemes/; the frontend checks them."""
    sentence_pause_milliseconds: int | None = 0
    """Silence between two sentences, where the text asks for none. None: as long as suits the
    sentence before it.
    """
    by_token: bool = False
    """Sentences are spoken while they are being written."""
    retry: bool = False
    """Whether a sentence that fails a guard may be said anew with another seed."""
    retried_sentences: frozenset[int] = frozenset()
    """Sentences that the lost request, of which this is the rest, has said with another seed."""
    trimmed: bool = False
    """Whether the silence at both ends is removed."""

    def speed_of(self, sentence: "Sentence | OpenSentence") -> float:
        """Speaking rate of one of its sentences."""
        return self.speed * sentence.rate


@dataclass(frozen=True)
class SpokenWord:
    """A word and the text ids that say it: the place of the first one, and how many."""

    text: str
    first_id: int
    ids: int


@dataclass(frozen=True)
class Sentence:
    """One utterance of the speech-token model: text token ids, and its place in the text. No ids:
    the silence at its end.
    """

    index: int
    token_ids: tuple[int, ...]
    pause_before_milliseconds: int = 0
    """Silence that the text asks for in front of it."""
    words: tuple[SpokenWord, ...] = ()
    rate: float = 1.0
    """Speaking rate that the text gives it, beside that of the request."""
    continues: bool = False
    """Goes on in mid-sentence behind the one before it, from which only its rate or language
    divides it.
    """

    @property
    def silent(self) -> bool:
        return not self.token_ids

    @property
    def length(self) -> int:
        """Its ids."""
        return len(self.token_ids)


class OpenSentence:
    """A sentence that is being written: its ids come in pieces. Bounded by the frontend, which ends
    a sentence after 200 of them.
    """

    silent = False

    def __init__(
        self, index: int, pause_before_milliseconds: int = 0, rate: float = 1.0, *, continues: bool = False
    ) -> None:
        self.index = index
        self.pause_before_milliseconds = pause_before_milliseconds
        self.rate, self.continues = rate, continues
        self.pieces: list[tuple[int, ...]] = []
        """As they came: a reader that begins anew is told the same pieces."""
        self.words: list[SpokenWord] = []
        """Those that the ids so far say."""
        self.length = 0
        """Ids so far."""
        self.complete = False
        self._changed = asyncio.Event()

    def extend(self, token_ids: tuple[int, ...], words: Iterable[SpokenWord] = ()) -> None:
        """words: those that `token_ids` say."""
        self.words += words
        if token_ids:
            self.pieces.append(token_ids)
            self.length += len(token_ids)
            self._wake()

    def end(self) -> None:
        self.complete = True
        self._wake()

    async def read(self) -> AsyncIterator[tuple[int, ...]]:
        """All pieces from the first one."""
        given = 0
        while True:
            if given < len(self.pieces):
                yield self.pieces[given]
                given += 1
            elif self.complete:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def tokens_to_first_border(prompt_tokens: int, first_hop_tokens: int) -> int:
    """New tokens up to the first border of the 25-token grid (which starts at the first prompt
    token) with at least `first_hop_tokens`.
    """
    border = -(-(prompt_tokens + first_hop_tokens) // spec.CHUNK_TOKENS) * spec.CHUNK_TOKENS
    return border - prompt_tokens
