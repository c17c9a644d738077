"""wetext as the text normalisation package: weighted finite-state grammars for Chinese and English.

A call holds the interpreter lock and takes time that grows faster than the text (0.05 s for 400
characters of Chinese, 1.8 s for 6,400), so callers hand over runs of bounded length.
"""

import re

from wetext import Normalizer as Grammars

from services.frontend.text.language import CHINESE

_ESCAPED = re.compile(r'\\(["\\])')
_GRAMMAR_SYNTAX = re.compile(r'["\\]')


class WeText:
    """Text normalisation with wetext, erhua kept, every other option at its default.

    reference: let wetext detect the language itself, as the specification has it, and leave its
    output as it is. Otherwise the language is the one asked for (wetext would read an English text
    of digits alone in Chinese) and the backslashes that wetext puts in front of quotes are taken
    out again. Text that the grammars cannot read comes back as it is, never as nothing.
    """

    def __init__(self, *, reference: bool = False) -> None:
        self._reference = reference
        self._detecting = Grammars(lang="auto", operator="tn", remove_erhua=False)

    def spoken(self, text: str, language: str) -> str:
        if self._reference:
            return self._through_grammar(text, "auto")
        spoken = self._through_grammar(text, CHINESE if language == CHINESE else "en") or text
        if spoken == text or not _GRAMMAR_SYNTAX.search(text):
            return spoken
        return _ESCAPED.sub(r"\1", spoken)

    def _through_grammar(self, text: str, language: str) -> str:
        """A character that the grammar does not know leaves it without a path: then no output, or a
        failed assertion in its parser.
        """
        try:
            return str(self._detecting.normalize(text, lang=language))
        except AssertionError:
            return ""
