"""Sentences that books lack and a talking agent says: short replies, several in a row, names, single words, words twice, letters.

A generator of templates, always the same sentences in the same order. They are texts for training: nothing here is measured on.
"""

import itertools
import random
from collections.abc import Iterator

from recipes.demo_voice.pronunciations import NAMES, read_names

_WORDS = [
    "Yes.",
    "No.",
    "Okay.",
    "Sure.",
    "Right.",
    "Fine.",
    "Great.",
    "Thanks.",
    "Sorry.",
    "Please.",
    "Hello.",
    "Hi.",
    "Hey.",
    "Goodbye.",
    "Bye.",
    "Maybe.",
    "Never.",
    "Always.",
    "Exactly.",
    "Absolutely.",
    "Correct.",
    "Wrong.",
    "Really?",
    "Why?",
    "How?",
    "When?",
    "Where?",
    "Who?",
    "What?",
    "Oh.",
    "Ah.",
    "Hm.",
    "Hmm.",
    "Wow.",
    "Oops.",
    "Well.",
    "Ugh.",
    "Whoa.",
    "Yeah.",
    "Nope.",
    "Yep.",
    "Perfect.",
    "Done.",
    "Nice.",
    "Cool.",
    "Wait.",
    "Stop.",
    "Go.",
    "Look.",
    "Listen.",
    "Congratulations!",
    "Help!",
    "Welcome!",
    "Indeed.",
    "Certainly.",
    "Definitely.",
    "Possibly.",
    "Tomorrow.",
    "Today.",
    "Later.",
]
_SHORT = (
    "Of course.", "Not yet.", "Not really.", "No problem.", "No worries.", "Thank you.", "Got it.", "I see.", "I know.", "Me too.",
    "Of course not.",
    "Good morning.", "Good night.", "See you soon.", "Take care.", "Come in.", "Go on.", "Why not?", "What else?", "Who knows?",
    "Are you sure?",
    "Let me check.", "One moment, please.", "Just a second.", "That's right.", "That's fine.", "I think so.", "I don't know.",
    "I'm not sure.",
    "It depends.", "Sounds good.", "Good question.", "Good luck!", "Well done!", "Never mind.", "My pleasure.", "You're welcome.",
    "Excuse me.",
    "I'm sorry.", "Uh-huh.", "Uh-oh.", "Oh, really?", "All right, then.", "So do I.", "Neither do I.", "Time is up.", "Here you go.",
    "Anything else?",
    "How are you?", "And you?", "Is that so?", "What happened?", "Can I help?", "Shall we?", "Right away.", "Hmm, let me think.",
    "Well, maybe.",
)  # fmt: skip
_TWICE = (
    "No, no, no.", "Bye bye.", "Very, very good.", "Well, well.", "There, there.", "Go, go, go!", "It's a long, long way.",
    "Yes, yes, I know.",
    "Again and again.", "Step by step.", "He said that that was fine.", "Okay, okay.", "Ha ha, very funny.", "Wait, wait!",
    "So, so many people.",
)  # fmt: skip
_WITH_NAMES = (
    "{0} called this morning.", "Thanks, {0}.", "Is {0} there?", "Hello, {0}!", "Please ask {0} about it.", "I met {0} and {1} yesterday.",
    "{0} is on the line.", "My name is {0}.", "{0}? Yes, speaking.", "Good morning, {0}. How are you?", "This is {0} from the office.",
    "{0} lives near {1}.", "We spoke with {0}. Then {1} came in.", "Dear {0}, thank you for your letter.", "The order is for {0}.",
    "Who is {0}?",
)  # fmt: skip
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def replies(count: int) -> Iterator[str]:
    """`count` sentences: every single word, short reply and letter once, every name three times, then replies joined two to four."""
    source = random.Random(15)  # noqa: S311 - a list that can be repeated, no secret
    names = [entry.name for entry in read_names(NAMES) if entry.name[0].isupper()]
    yield from itertools.islice(_all(source, names), count)


def _all(source: random.Random, names: list[str]) -> Iterator[str]:
    yield from _WORDS
    yield from _SHORT
    yield from _TWICE
    yield from (f"{letter}." for letter in _LETTERS)
    for _ in range(3):
        yield from (source.choice(_WITH_NAMES).format(name, source.choice(names)) for name in names)
    while True:
        number = source.randint(2, 4)
        chosen = [source.choice(source.choice((_WORDS, _SHORT, _SHORT, _TWICE))) for _ in range(number)]
        if source.random() < 0.2:
            chosen.append(f"{', '.join(source.sample(_LETTERS, source.randint(2, 5)))}.")
        yield " ".join(chosen)
