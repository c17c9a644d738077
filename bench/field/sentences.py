"""1,088 English sentences of our own, as many as Seed-TTS's English set has and about as long in
speech: the bundled voice takes 4.6 s on average. They are put together of word lists with a fixed
seed (`python -m bench.field.tts_bench --sentences FILE` writes them). Texts of so many seconds are
several of them.
"""

import json
import random
from functools import cache
from pathlib import Path

ROWS = 1_088
_SEED = 20_261_125
_MEAN_WORDS, _SPREAD, _FEWEST, _MOST = 16.6, 4.4, 8, 28
WORDS_A_SECOND = 3.65
"""Of these sentences: 16.6 words on average, which the bundled voice speaks in 4.6 s."""
SENTENCES = "sentences"
"""Name of the set that is not of one length."""

_PEOPLE = """the old librarian, my neighbour, a young engineer, our teacher, the night nurse, her
brother, the bus driver, a quiet student, the new manager, his grandmother, the baker on the corner,
a tired postman, the choir, two tourists, the gardener, our captain, a retired judge, the little
girl, someone from the office, the whole team, a local painter, the woman next door, his oldest
friend, the visiting doctor, a group of children, the farmer, my cousin, the mechanic"""
_DEEDS = """found, repaired, described, carried, lost, painted, remembered, borrowed, sold, hid,
opened, cleaned, photographed, returned, measured, packed, showed us, talked about, looked for,
waited for, wrote about, forgot, moved, bought, counted, brought back, asked about, put away, drew,
admired"""
_THINGS = """a wooden boat, the broken clock, three heavy boxes, an unfinished letter, the last
ticket, a map of the harbour, the blue umbrella, a basket of apples, the spare key, an old camera,
the garden gate, a bag of warm bread, the evening paper, a pair of boots, the winter coat, a small
engine, the long report, a jar of honey, the missing page, a box of matches, the kitchen table,
several photographs, a piece of rope, the yellow bicycle, an empty bottle, the village hall, a
silver ring, the morning train, a pot of coffee, the white horse"""
_PLACES = """behind the station, near the river, in the attic, on the second floor, at the market,
under the bridge, outside the museum, by the open window, across the valley, in a quiet street, at
the edge of town, along the canal, between two tall buildings, in front of the school, on the way
home, at the bottom of the hill, beside the lighthouse, in the corner of the room, next to the fire
station, on the far side of the lake"""
_TIMES = """yesterday, early in the morning, after lunch, just before midnight, last summer, on the
first day of spring, a week ago, during the storm, at the weekend, when the rain stopped, late in
the afternoon, for the second time, without any hurry, as always, on a cold evening, while everyone
slept, at exactly the right moment, long ago, shortly after breakfast, in the middle of winter"""
_OPENINGS = """no one knew why, to our surprise, as far as I know, people say that, strangely
enough, it turned out that, in the end, I still believe that, by the time we arrived, according to
the letter, the neighbours think that, for no clear reason, if I remember well, everybody could see
that"""
_MANNERS = "carefully, slowly, at once, without a word, with great care, almost by accident, very quietly, with a smile"
_LINKS = "and then, but later, so in the evening, although, because, and after that, while, which is why, until"
_QUESTIONS = "do you know whether, can you tell me why, have you heard that, is it true that, did they say when"


def sentences() -> list[str]:
    """The same sentences in every process, none twice."""
    draw = random.Random(_SEED)
    found: dict[str, None] = {}
    while len(found) < ROWS:
        words = round(draw.gauss(_MEAN_WORDS, _SPREAD))
        if not _FEWEST <= words <= _MOST:
            continue
        sentence = _sentence(draw)
        while len(sentence.split()) != words:
            sentence = _sentence(draw)
        found.setdefault(sentence)
    return list(found)


def write(path: Path) -> Path:
    """As the lines of JSON that tts_bench reads as its data set."""
    rows = ({"id": f"own-{number:04}", "text": text} for number, text in enumerate(sentences(), 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


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


def _of(draw: random.Random, listed: str) -> str:
    return draw.choice(_PARTS[listed])


def _clause(draw: random.Random) -> str:
    parts = [_of(draw, _PEOPLE), _of(draw, _DEEDS), _of(draw, _THINGS)]
    parts += [_of(draw, listed) for listed in (_MANNERS, _PLACES, _TIMES) if draw.random() < 0.45]
    return " ".join(parts)


def _sentence(draw: random.Random) -> str:
    clauses = _clause(draw)
    if draw.random() < 0.55:
        clauses += f", {_of(draw, _LINKS)} {_clause(draw)}"
    kind = draw.random()
    if kind < 0.12:
        text = f"{_of(draw, _QUESTIONS)} {clauses}?"
    elif kind < 0.4:
        text = f"{_of(draw, _OPENINGS)} {clauses}."
    else:
        text = f"{clauses}."
    return text[0].upper() + text[1:]


_PARTS = {
    listed: [" ".join(part.split()) for part in listed.split(",")]
    for listed in (_PEOPLE, _DEEDS, _THINGS, _PLACES, _TIMES, _OPENINGS, _MANNERS, _LINKS, _QUESTIONS)
}
