"""Sentences that books lack and a talking agent says: short replies, several in a row, names,
single words, words twice, letters.

A generator of templates, always the same sentences in the same order. They are texts for training:
nothing here is measured on.
"""

import itertools
import random
from collections.abc import Iterator

from recipes.demo_voice.text.pronunciations import NAMES, read_names

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
    "Of course.", "Not yet.", "Not really.", "No problem.", "No worries.", "Thank you.", "Got it.", "I see.",
    "I know.", "Me too.",
    "Of course not.",
    "Good morning.", "Good night.", "See you soon.", "Take care.", "Come in.", "Go on.", "Why not?", "What else?",
    "Who knows?",
    "Are you sure?",
    "Let me check.", "One moment, please.", "Just a second.", "That's right.", "That's fine.", "I think so.",
    "I don't know.",
    "I'm not sure.",
    "It depends.", "Sounds good.", "Good question.", "Good luck!", "Well done!", "Never mind.", "My pleasure.",
    "You're welcome.",
    "Excuse me.",
    "I'm sorry.", "Uh-huh.", "Uh-oh.", "Oh, really?", "All right, then.", "So do I.", "Neither do I.", "Time is up.",
    "Here you go.",
    "Anything else?",
    "How are you?", "And you?", "Is that so?", "What happened?", "Can I help?", "Shall we?", "Right away.",
    "Hmm, let me think.",
    "Well, maybe.",
)  # fmt: skip
_TWICE = (
    "No, no, no.", "Bye bye.", "Very, very good.", "Well, well.", "There, there.", "Go, go, go!",
    "It's a long, long way.",
    "Yes, yes, I know.",
    "Again and again.", "Step by step.", "He said that that was fine.", "Okay, okay.", "Ha ha, very funny.",
    "Wait, wait!",
    "So, so many people.",
)  # fmt: skip
_WITH_NAMES = (
    "{0} called this morning.", "Thanks, {0}.", "Is {0} there?", "Hello, {0}!", "Please ask {0} about it.",
    "I met {0} and {1} yesterday.",
    "{0} is on the line.", "My name is {0}.", "{0}? Yes, speaking.", "Good morning, {0}. How are you?",
    "This is {0} from the office.",
    "{0} lives near {1}.", "We spoke with {0}. Then {1} came in.", "Dear {0}, thank you for your letter.",
    "The order is for {0}.",
    "Who is {0}?",
)  # fmt: skip
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_INTERJECTIONS = (
    "Ugh", "Uh-oh", "Huh", "Hm", "Hmm", "Mm-hmm", "Uh-huh", "Ah", "Oh", "Aw", "Ooh", "Oops", "Ouch", "Phew", "Wow",
    "Whoa", "Yikes", "Hey",
    "Well", "Um", "Uh", "Yay", "Nah", "Gosh", "Ha",
)  # fmt: skip
_BEHIND_INTERJECTIONS = (
    "I forgot", "I know", "I see", "I doubt it", "it is late", "it's you", "another one", "of course", "all right",
    "okay", "good", "not again",
    "that hurts", "we made it", "what a day", "let me see", "let me think", "I'm not sure", "are you sure", "again",
    "enough", "fine",
    "really", "my phone is off", "you found it", "that smells good", "is it Monday already", "I left it at home",
    "I agree", "no", "yes",
    "Emma", "everything is wet", "interesting", "the lights went out", "ask him", "it broke", "I thought you knew",
)  # fmt: skip
_LETTERED = (
    "gate", "seat", "row", "plan", "option", "room", "section", "page", "drawer", "vitamin", "group", "building",
    "platform", "terminal",
    "grade", "type", "size", "block", "exit", "flat", "team", "level", "part", "column", "line", "box", "answer",
    "model", "bus", "track",
    "apartment", "bay", "aisle", "table", "locker", "shelf", "class", "hall", "zone", "wing", "version", "point",
    "item", "field", "key",
)  # fmt: skip
_WITH_LETTERS = (
    "{noun} {letter}.", "It's {noun} {letter}.", "Go to {noun} {letter}.", "Try {noun} {letter}.",
    "{noun} {letter} or {noun} {other}?",
    "Your {noun} is {number} {letter}.", "You are in {noun} {number} {letter}.", "Is it {noun} {letter}?",
    "{noun} {number} {letter}, please.",
    "I'd take {noun} {letter} instead.", "Turn to {noun} {letter}.", "{noun} {letter}? Fine by me.",
    "{noun} {letter} is closed.",
    "The {noun} {letter} leaves at {number}.", "It starts with {letter}.", "{letter}, as in {word}.",
    "{letter}, not {other}.",
    "That's {letter}, {other}, {third}.", "{letter} {other} {third}.", "Press {letter}.", "Choose {letter} or {other}.",
    "My grade was {letter}.", "{number} {letter}.", "Row {letter}, seat {number}.", "A capital {letter}.",
    "{letter} and {other}.",
)  # fmt: skip
_NUMBERS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen",
    "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "twenty-one", "thirty", "thirty-five", "forty-two",
    "fifty", "sixty", "ninety-nine",
    "a hundred",
)  # fmt: skip
_THINGS = (
    "tea", "coffee", "water", "soup", "salad", "rice", "fish", "chicken", "bread", "cheese", "apples", "oranges",
    "red", "blue", "green",
    "yellow", "black", "white", "brown", "large", "small", "medium", "left", "right", "up", "down", "today",
    "tomorrow", "tonight", "now",
    "later", "never", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "January", "April",
    "August", "December",
    "spring", "summer", "autumn", "winter", "morning", "noon", "evening", "cash", "card", "window", "aisle", "north",
    "south", "east", "west",
    "hot", "cold", "early", "late", "new", "old", "here", "there", "in", "out", "on", "off", "open", "closed", "yes",
    "no", "more", "less",
    "email", "phone", "home", "work", "school", "downtown", "upstairs", "outside", "inside", "first", "second", "last",
    "next", "both",
    "neither", "either", "all", "none", "some", "enough", "paper", "plastic", "glass", "silver", "gold", "garden",
    "kitchen", "office",
    "dog", "cat", "bird", "horse", "car", "bus", "train", "plane", "boat", "taxi",
)  # fmt: skip
_WITH_THINGS = (
    "{a}.", "{a}?", "{a}!", "{a} or {b}?", "{a}, please.", "{a} and {b}.", "Not {a}.", "Only {a}.", "{a}, then.",
    "Is it {a} or {b}?",
    "{a} or {b}? Your choice.", "{a}, {b} or {c}?", "{a}, I think.", "{a}? Yes.", "{a}? No, {b}.", "More {a}?",
    "Or {a}?", "So, {a}?",
    "Maybe {a}.", "{a}, {b} and {c}.", "{a}, {a}, {a}.", "{a} again?", "Why {a}?", "{number} {a}.",
    "{number} or {other_number}?", "{number}.",
    "At {number}.", "About {number}.", "{number}, {other_number}, {third_number}.", "{number} past {other_number}.",
    "Which {a}?",
)  # fmt: skip


_BEFORE_VOWELS = (
    "Call", "Thank", "Text", "Email", "Invite", "Meet", "Help", "Wake", "Pick up", "Look at", "Wait for", "Talk with",
    "Is it", "Was that", "It's not", "Just like", "I like", "I met", "We need", "That is", "What about", "Where is",
    "Think of", "Good", "Next", "First", "Last", "Most", "Both", "Right", "Left",
)  # fmt: skip
_VOWELS = (
    "Alice", "Emma", "Amy", "Ivan", "Elena", "Isaac", "Oscar", "Eve", "Ian", "Ellen", "Owen", "Ada", "Otto", "Ursula",
    "Evan", "Adam", "Eric", "Olga", "Irene", "Arthur", "Edith", "Agnes", "Uncle Al", "Aunt Ida", "eight", "eleven",
    "eighty", "apples", "oranges", "eggs", "ice", "April", "August", "October", "Asia", "Italy", "Austria", "Ohio",
    "aisle eight", "exit A", "the others", "everyone", "anything", "either", "evening", "orange", "airports",
)  # fmt: skip
_WITH_VOWELS = (
    "{before} {vowel}.", "{before} {vowel}!", "{before} {vowel}?", "{before} {vowel}. {other} is here.",
    "{before} {vowel}, please.", "{before} {vowel} and {other}.", "{before} {vowel} or {other}?",
    "{before} {vowel} again.", "Okay. {before} {vowel}.", "{other}. {before} {vowel}.", "{before} {vowel} at eight.",
)  # fmt: skip


def replies(count: int) -> Iterator[str]:
    """`count` sentences: every single word, short reply and letter once, every name three times,
    then an even mixture of interjections in front of words, letters behind nouns, vowels behind
    short words, questions of one or two words, and replies joined two to four."""
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
    kinds = (_interjected, _lettered, _before_vowels, _brief, _joined)
    while True:
        yield source.choice(kinds)(source)


def _interjected(source: random.Random) -> str:
    first, behind = source.choice(_INTERJECTIONS), source.choice(_BEHIND_INTERJECTIONS)
    mark, end = source.choice(",,,.!?"), source.choice(".!?")
    if source.random() < 0.2:
        return f"{first}{end}"
    return f"{first}{mark} {behind if mark == ',' else _capital(behind)}{end}"


def _lettered(source: random.Random) -> str:
    letter, other, third = source.sample(_LETTERS, 3)
    template = source.choice(_WITH_LETTERS)
    numbered = {"noun": source.choice(_LETTERED), "number": source.choice(_NUMBERS), "word": source.choice(_THINGS)}
    return _capital(template.format(letter=letter, other=other, third=third, **numbered))


def _before_vowels(source: random.Random) -> str:
    vowel, other = source.sample(_VOWELS, 2)
    template = source.choice(_WITH_VOWELS)
    return _capital(template.format(before=source.choice(_BEFORE_VOWELS), vowel=vowel, other=_capital(other)))


def _brief(source: random.Random) -> str:
    a, b, c = source.sample(_THINGS, 3)
    number, other, third = source.sample(_NUMBERS, 3)
    template = source.choice(_WITH_THINGS)
    return _capital(template.format(a=a, b=b, c=c, number=number, other_number=other, third_number=third))


def _joined(source: random.Random) -> str:
    chosen = [source.choice(source.choice((_WORDS, _SHORT, _SHORT, _TWICE))) for _ in range(source.randint(2, 4))]
    if source.random() < 0.2:
        chosen.append(f"{', '.join(source.sample(_LETTERS, source.randint(2, 5)))}.")
    return " ".join(chosen)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
