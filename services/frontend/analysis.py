"""A text becomes sentences with token ids: the one path behind every way of sending text."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from cosyserve.spec import LONGEST_SENTENCE
from services.frontend.language import language_of
from services.frontend.normalize import Normalizer
from services.frontend.sentences import Splitter, cut_to_limit, is_only_marks
from services.frontend.text_tokenizer import Tokenizer
from services.frontend.units import runs_of

RUN_CHARACTERS = 200
"""Characters normalised at a time: about 0.02 s, during which the text normalisation package holds the interpreter lock."""
MEASURED_CHARACTERS = 1024
_KEPT_CONTROLS = "\n\t\r"
_UNSPEAKABLE = ("Cc", "Co")


@dataclass(frozen=True)
class Sentence:
    """One utterance of the speech-token model."""

    text: str
    """As it will be spoken."""
    token_ids: tuple[int, ...]
    """1 to 200 ids (spec.LONGEST_SENTENCE)."""
    language: str
    """As `services.frontend.language.language_of` gives it."""
    words: tuple[tuple[str, int, int], ...] = ()
    """Each with the place of its first id and the number of its ids; see `Tokenizer.spoken_words`."""


class Analyzer:
    """Normalises, splits and tokenises; holds no state of a request.

    allow_special: parse `<|...|>` control tokens in text (the reference does; served text must not steer the model unless a setting
    says so).

    Texts of up to 200 characters are treated exactly as compatibility specification section 2.1 says (faults mended). Longer ones are
    normalised in runs of whole sentences, so that the first sentence need not wait for the last and no call holds the interpreter for
    long; only a text of 200 characters without any sentence end is cut at a blank or comma for it. A normaliser in reference mode sees
    the text as a whole.
    """

    def __init__(self, normalizer: Normalizer, tokenizer: Tokenizer, *, allow_special: bool = False) -> None:
        self._normalizer = normalizer
        self._tokenizer = tokenizer
        self._allow_special = allow_special
        self._reference = normalizer.reference

    def sentences(self, text: str, language_code: str = "") -> Iterator[Sentence]:
        """The sentences of `text` in order, each as soon as it is known. Nothing is left of a text that holds only punctuation, and nothing
        of what the tokenizer cannot express (another script, for a model of English phonemes).

        Raises InvalidRequest when `language_code` is neither empty nor a BCP-47 tag.
        """
        language = language_of(language_code, text)
        for segment in self.segments(text, language_code):
            for part in cut_to_limit(segment, LONGEST_SENTENCE, self._length):
                ids = self._encode(part)
                if ids:
                    yield Sentence(part, tuple(ids), language, tuple(self._tokenizer.spoken_words(part)))

    def segments(self, text: str, language_code: str = "") -> Iterator[str]:
        """The normalised and split text (the specification's split mode), before anything is cut to the model's limit."""
        if _is_markup(text) or (self._reference and not text):
            yield from [text] if self._reference else self._speakable(iter([text]))
            return
        language = language_of(language_code, text)
        splitter = Splitter(language, self._length if self._reference else self._length_of_start)
        for run in self._runs(text, language):
            yield from self._speakable(splitter.feed(run))
        yield from self._speakable(splitter.finish())

    def normalise(self, text: str, language_code: str = "") -> str:
        """The normalised text as a whole (the specification's no-split mode, used for prompt transcripts)."""
        if _is_markup(text):
            return text
        return "".join(self._runs(text, language_of(language_code, text)))

    def _runs(self, text: str, language: str) -> Iterator[str]:
        text = text.strip() if self._reference else _without_unspeakable(text).strip()
        runs = [text] if self._reference else list(runs_of(text, RUN_CHARACTERS))
        before = ""
        for index, run in enumerate(runs):
            yield self._normalizer.normalise(run, language, before=before, last=index == len(runs) - 1)
            before = run[-1:]

    def _speakable(self, segments: Iterator[str]) -> Iterator[str]:
        return (segment for segment in segments if not is_only_marks(segment, reference=self._reference))

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, allow_special=self._allow_special)

    def _length(self, text: str) -> int:
        return len(self._encode(text))

    def _length_of_start(self, text: str) -> int:
        """Enough for the splitter, which only asks about lengths up to 80 tokens."""
        return self._length(text[:MEASURED_CHARACTERS])


def _is_markup(text: str) -> bool:
    return "<|" in text and "|>" in text


def _without_unspeakable(text: str) -> str:
    """Control characters and private-use ones (icon fonts) make the grammars give up on the whole text."""
    return "".join(c for c in text if c in _KEPT_CONTROLS or unicodedata.category(c) not in _UNSPEAKABLE)
