"""What each element of the subset may carry, and what is known beside it."""

READ = {
    "speak": {"version", "onlangfailure"},
    "p": set[str](),
    "s": set[str](),
    "break": {"time", "strength"},
    "sub": {"alias"},
    "say-as": {"interpret-as", "format"},
    "phoneme": {"alphabet", "ph"},
    "prosody": {"rate"},
    "lang": {"onlangfailure"},
}
"""Elements that are read, each with its attributes; `id`, `xml:...` and `xmlns...` may stand
anywhere.
"""
TEXT_ALONE = frozenset(("sub", "say-as", "phoneme"))
"""No element that is read may stand in these."""
SENTENCES = frozenset(("p", "s"))
NOT_READ = frozenset(("metadata", "meta", "desc", "lexicon"))
"""What stands in these is about the text and no part of it."""
DEEPEST = 32
"""Elements within each other."""
LONGEST_DOCUMENT = 20_000
"""Characters."""
LONGEST_TAG = 4_000
"""Characters of a tag, comment or reference: it is scanned anew with each fragment that goes on
with it.
"""
LONGEST_CONTENT = 200
"""Characters in an element of TEXT_ALONE, and in its `alias` or `ph`."""
MOST_NAMED = 40
"""Names of elements and attributes in warnings; each is named once, the first characters of it."""
LONGEST_NAME = 40


def is_harmless(attribute: str) -> bool:
    """Whether an attribute may stand at any element."""
    return attribute == "id" or attribute.startswith(("xml:", "xmlns"))
