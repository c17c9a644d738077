"""wetext as the text normalisation package: weighted finite-state grammars for Chinese and English.

A call holds the GIL and takes time that grows faster than the text (0.05 s for 400 characters of
Chinese, 1.8 s for 6,400), so callers pass runs of bounded length.
"""

import re

from wetext import Normalizer as Grammars

from services.frontend.text.language import CHINESE

_ESCAPED = re.compile(r'\\(["\\])')
_GRAMMAR_SYNTAX = re.compile(r'["\\]')


class WeText:
    """Text normalisation with wetext, erhua kept, every other option at its default.

    reference: let wetext detect the language itself, as specified, and leave its output unchanged.
    Otherwise the given language is used (wetext would read an English text of digits alone in
    Chinese) and the backslashes that wetext puts before quotes are removed. Text that the grammars
    cannot read is returned unchanged, never empty.
    """

    def __init__(self, *, reference: bool = False) -> None:
        self._reference = reference
        self._detecting = Grammars(lang="auto", operator="tn", remove_erhua=False)

    def spoken(self, text: str, language: str) -> str:
        if self._reference:
            return self._through_grammar(text, "auto")
        spoken = self._through_grammar(text, CHINESE if language == CHINESE else "en") or text
        escaped = spoken != text and _GRAMMAR_SYNTAX.search(text)
        return _ESCAPED.sub(r"\1", spoken) if escaped else spoken

    def _through_grammar(self, text: str, language: str) -> str:
        """A character that the grammar does not know leaves it without a path: the result is empty
        or its parser fails an assertion.
        """
        try:
            return str(self._detecting.normalize(text, lang=language))
        except AssertionError:
            return ""
