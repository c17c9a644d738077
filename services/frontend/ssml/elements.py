"""The supported elements with their attributes, and the size limits of a document."""

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
"""Elements that are read, each with its attributes; `id`, `xml:...` and `xmlns...` are allowed
everywhere.
"""
TEXT_ALONE = frozenset(("sub", "say-as", "phoneme"))
"""These may contain text only, no element that is read."""
SENTENCES = frozenset(("p", "s"))
NOT_READ = frozenset(("metadata", "meta", "desc", "lexicon"))
"""Their content is metadata and is not part of the text."""
DEEPEST = 32
"""Nesting depth of elements."""
LONGEST_DOCUMENT = 20_000
"""Characters."""
LONGEST_TAG = 4_000
"""Characters of a tag, comment or reference: it is scanned again with each fragment that continues
it.
"""
LONGEST_CONTENT = 200
"""Characters in an element of TEXT_ALONE, and in its `alias` or `ph`."""
MOST_NAMED = 40
"""Names of elements and attributes in warnings; each is reported once and truncated."""
LONGEST_NAME = 40


def is_harmless(attribute: str) -> bool:
    """Whether an attribute is allowed on every element."""
    return attribute == "id" or attribute.startswith(("xml:", "xmlns"))
