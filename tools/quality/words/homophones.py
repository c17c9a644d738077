"""Words that sound alike and differ only in writing: the name of a letter, and an
interjection.

A recogniser that hears "gate C" may write "gate see", and "Phew!" as "Few": the sound is right, so
nothing was lost. The lists hold words of the very same phonemes in American English
(Merriam-Webster), and count only next to the letter or the interjection itself: "see" and "sea"
stay two words, as "their" and "there" do.
"""

_LISTED = """
a eh, b be bee, c see sea, d dee, f eff, g gee, h aitch, i eye aye, j jay, k kay, l el ell, m em, n
en, o oh owe, p pea pee, q cue queue, r are, s ess, t tea tee, u you ewe, v vee, x ex, y why, z zee,
eh a, oh o owe, phew few, yay yea, aw awe, whoa wo, hey hay
"""
_ALIKE = {
    first: frozenset(others) for first, *others in (line.split() for line in _LISTED.replace("\n", " ").split(","))
}


def same_sound(word: str, other: str) -> bool:
    """Whether the two forms of `spelling.words_of` are the same word, or one is a letter or an
    interjection that sounds like the other.
    """
    return word == other or other in _ALIKE.get(word, ()) or word in _ALIKE.get(other, ())
