"""What is asked for: sentences of the lengths of Seed-TTS's English set, or texts of about so many
seconds of speech.
"""

from functools import cache

from bench.field.sentences import sentences

WORDS_A_SECOND = 3.65
"""Of these sentences: 16.6 words on average, which the bundled voice speaks in 4.6 s."""
SENTENCES = "sentences"
"""Name of the set that is not of one length."""


@cache
def texts(kind: str) -> tuple[str, ...]:
    """kind: SENTENCES, or a number of seconds such as "10": then whole sentences, joined until no
    other one of the set brings the number of words closer. Raises ValueError for another kind.
    """
    every = tuple(sentences())
    if kind == SENTENCES:
        return every
    wanted = round(float(kind) * WORDS_A_SECOND)
    return tuple(dict.fromkeys(_joined(every, start, wanted) for start in range(0, len(every), 17)))


def _joined(every: tuple[str, ...], start: int, wanted: int) -> str:
    """Sentences from `start` on, and as the last one that of the set whose length fits best."""
    chosen: list[str] = []
    left, place = wanted, start
    longest = max(len(sentence.split()) for sentence in every)
    while left > longest:
        sentence = every[place % len(every)]
        chosen.append(sentence)
        left -= len(sentence.split())
        place += 1
    turned = (every[(place + step) % len(every)] for step in range(len(every)))
    return " ".join([*chosen, min(turned, key=lambda sentence: abs(len(sentence.split()) - left))])
