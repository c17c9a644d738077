"""A request as the pipeline sees it: validated, with defaults filled in, without protobuf."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field

from cosyserve import spec
from cosyserve.audio.encoding import AnyEncoding
from cosyserve.tasks import Changes
from services.orchestrator.speech.conditioning import Prompting


@dataclass(frozen=True)
class Utterance:
    """What to say and how. `profile` and `growth` are the numbers of their protobuf enums."""

    text: str
    prompting: Prompting
    language_code: str
    seed: int
    speed: float
    profile: int
    first_hop_tokens: int
    growth: int
    max_hop_tokens: int
    encoding: AnyEncoding
    sample_rate: int
    start_sample: int = 0
    """At `sample_rate`, over the whole utterance."""
    engine: str = ""
    """Name of the engines that must serve the request; empty: any."""
    allow_control_tokens: bool = False
    pronunciations: Mapping[str, str] = field(default_factory=dict)
    """Written form to respelling or /phonemes/; the frontend checks them."""
    sentence_pause_milliseconds: int | None = 0
    """Silence between two sentences if the text asks for none. None: depends on the sentence before
    it.
    """
    max_sentence_characters: int = 0
    """Longest sentence that the caller allows, in characters as they are spoken; 0: no limit."""
    by_token: bool = False
    """Whether sentences are spoken while they are being written."""
    retry: bool = False
    """Whether a sentence that fails a guard may be generated again with another seed."""
    retried_sentences: frozenset[int] = frozenset()
    """Sentences that the lost request, which this one resumes, spoke with another seed."""
    trimmed: bool = False
    """Whether the silence at both ends is removed."""
    least_euler_steps: int = 0
    """Fewest Euler steps that the caller allows near the limit of the server; 0: ten."""
    euler_steps: int = 0
    """Euler steps that the caller asks for; 0: it leaves that to the server."""
    preferred_euler_steps: int = 0
    """Euler steps where the engine can take fewer than ten; 0: ten."""
    browned_out: bool = False
    """Whether the server was near its limit when the request began (`faults.brownout`)."""

    def speed_of(self, sentence: "Sentence") -> float:
        """Speaking rate of one of its sentences."""
        return self.speed * sentence.rate


@dataclass(frozen=True)
class SpokenWord:
    """A word and its text ids: index of the first one, and how many."""

    text: str
    first_id: int
    ids: int


class Sentence:
    """One sentence for the speech-token model: its text token ids, of which more may follow while
    it is being written; the frontend ends a sentence after 200 of them. Without ids it is the
    silence at the end of the text.
    """

    def __init__(
        self,
        index: int,
        token_ids: tuple[int, ...] = (),
        pause_before_milliseconds: int = 0,
        words: Iterable[SpokenWord] = (),
        rate: float = 1.0,
        *,
        continues: bool = False,
        whole: bool = True,
        language: str = "",
    ) -> None:
        self.index = index
        """Its number in the text, from 0."""
        self.pause_before_milliseconds = pause_before_milliseconds
        """Silence that the text asks for before it."""
        self.rate = rate
        """Speaking rate from the text, a factor on that of the request."""
        self.continues = continues
        """Whether it continues the previous sentence in mid-sentence, where only the rate or
        language changes.
        """
        self.whole = whole
        """Whether all its ids were known from the beginning: it is spoken as a whole, not while it
        is being written.
        """
        self.pieces = [token_ids] if token_ids else []
        """Its ids in the order of arrival: a reader that starts again gets the same pieces."""
        self.words = list(words)
        """The words of the ids so far."""
        self.languages = {language}
        """The languages in which its parts are read, as the frontend names them."""
        self.length = len(token_ids)
        """Number of ids so far."""
        self.complete = whole
        self._changes = Changes()

    @property
    def silent(self) -> bool:
        return self.whole and not self.pieces

    def extend(self, token_ids: tuple[int, ...], words: Iterable[SpokenWord], language: str = "") -> None:
        """words: the words of `token_ids`; language: in which they are read."""
        self.words += words
        if token_ids:
            self.languages.add(language)
            self.pieces.append(token_ids)
            self.length += len(token_ids)
            self._changes.notify()

    def end(self) -> None:
        self.complete = True
        self._changes.notify()

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
                await self._changes.wait()


def tokens_to_first_border(prompt_tokens: int, first_hop_tokens: int) -> int:
    """New tokens up to the first border of the 25-token grid (which starts at the first prompt
    token) with at least `first_hop_tokens`.
    """
    border = -(-(prompt_tokens + first_hop_tokens) // spec.CHUNK_TOKENS) * spec.CHUNK_TOKENS
    return border - prompt_tokens
