"""The spoken forms that a text may have, written in one line: `at {seven thirty/half past seven} |
at nineteen thirty`.

` | ` divides whole alternatives. Braces hold the choices at one place, divided by `/`; one of them
may be empty. Braces do not nest. Outside braces a `/` has no meaning here (`/nwˈɪn/` is a stretch
of phonemes, which the judge of English reads).
"""

import itertools
import re

BETWEEN = " | "
MOST = 4096
"""Forms of one line: more are a mistake in it."""
_CHOICE = re.compile(r"\{([^{}]*)\}")


def spoken_forms(line: str) -> list[str]:
    """Every form that `line` allows, in order, blanks around it taken off and inner ones single.

    Raises ValueError for an empty line, a brace without its partner or within another, and for more
    than 4096 forms.
    """
    forms: list[str] = []
    for alternative in line.split(BETWEEN):
        # Literal text and choices take turns: the pattern has one group.
        parts = _CHOICE.split(alternative)
        if any("{" in part or "}" in part for part in parts):
            raise ValueError(f"braces do not pair in {line!r}")
        places = [part.split("/") if place % 2 else [part] for place, part in enumerate(parts)]
        forms += [
            " ".join("".join(chosen).split()) for chosen in itertools.islice(itertools.product(*places), MOST + 1)
        ]
        if len(forms) > MOST:
            raise ValueError(f"more than {MOST} forms in {line!r}")
    if not all(forms):
        raise ValueError(f"an empty form in {line!r}")
    return forms
