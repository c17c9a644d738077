"""Characters get the times of the words that they are; no character is lost, however the words
differ from what is written.
"""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyserve.client.types import WordTime
from services.gateway.elevenlabs.alignment.characters import Alignment, CharacterTimes, SpokenText
from services.gateway.elevenlabs.alignment.written_text import matched


def spoken(*sentences: str) -> list[WordTime]:
    """Words of 0.3 s each, 0.1 s apart; half a second between sentences."""
    words, at = [], 0.0
    for number, sentence in enumerate(sentences):
        for word in sentence.split():
            words.append(WordTime(word, at, at + 0.3, number))
            at += 0.4
        at += 0.5
    return words


def aligned(text: str, *sentences: str) -> list[Alignment]:
    """Sentence by sentence, then the rest."""
    words, speech, found = spoken(*sentences), SpokenText(text), []
    for number in range(len(sentences)):
        alignment = speech.news([word for word in words if word.sentence <= number])
        assert alignment is not None
        found.append(alignment)
    rest = speech.rest()
    return [*found, rest] if rest is not None else found


def text_of(times: CharacterTimes) -> str:
    return "".join(times.characters)


def start_of(times: CharacterTimes, word: str) -> float:
    return times.starts[text_of(times).index(word)]


@pytest.mark.parametrize(
    ("text", "sentences", "normalized"),
    [
        ("Hello there.", ["Hello there"], ["Hello there."]),
        (" Hello, there! And on. ", ["Hello there", "And on"], [" Hello, there! ", "And on. "]),
        ("It costs $12.50 today.", ["It costs twelve dollars fifty cents today"], None),
        ("It is 42. Then go.", ["It is forty two", "Then go"], ["It is forty two. ", "Then go."]),
        ("See Dr. Smith.", ["See doctor Smith"], ["See doctor Smith."]),
        ("42% off", ["forty two percent off"], ["forty two percent off"]),
        ('Dr. Smith’s AM/PM (yes) "so".', ["doctor Smith's AM PM yes so"], None),
        ("Up 😀 and on", ["Up and on"], ["Up 😀 and on"]),
        ("One [unreadable] word", ["One word"], None),
        ("你好吗？很好", ["你 好 吗", "很 好"], ["你好吗？", "很好"]),
        ("no match at all. Next", ["something else here", "Next"], None),
    ],
)
def test_sentences_find_their_text(text: str, sentences: list[str], normalized: list[str] | None) -> None:
    parts = aligned(text, *sentences)
    assert "".join(text_of(part.written) for part in parts) == text
    if normalized is not None:
        assert [text_of(part.spoken) for part in parts] == normalized


def test_words_keep_their_times_and_gaps_belong_to_blanks() -> None:
    (times,) = [part.written for part in aligned("Hello, old 42 world", "Hello old forty two world")]
    assert start_of(times, "Hello") == 0.0
    assert start_of(times, ",") == pytest.approx(0.3)
    assert start_of(times, "old") == pytest.approx(0.4)
    assert start_of(times, "42") == pytest.approx(0.8)
    assert start_of(times, "2") == pytest.approx((0.8 + 1.5) / 2)
    assert start_of(times, "world") == pytest.approx(1.6)
    assert times.ends[-1] == pytest.approx(1.9)
    gap = times.characters.index(" ")
    assert (times.starts[gap], times.ends[gap]) == (pytest.approx(0.3), pytest.approx(0.4))


def test_milliseconds_of_parts_add_up() -> None:
    """As clients add them: each part begins where the last character of the one before ended."""
    parts = aligned("One two. Three four. Five", "One two", "Three four", "Five")
    clock, since, starts = 0, 0, []
    for part in parts:
        form = json.loads(json.dumps(part.written.in_milliseconds(since)))
        assert len(form["chars"]) == len(form["charStartTimesMs"]) == len(form["charDurationsMs"])
        starts += [clock + start for start in form["charStartTimesMs"]]
        clock += form["charStartTimesMs"][-1] + form["charDurationsMs"][-1]
        since = round(1000 * part.end)
        assert clock == since
    assert starts == [round(1000 * start) for part in parts for start in part.written.starts]


def test_without_word_times_there_is_no_alignment() -> None:
    speech = SpokenText("Hello.")
    assert speech.news([]) is None
    assert speech.rest() is None


def test_of_equal_matches_the_earliest_is_taken() -> None:
    assert matched(["a", "b"], ["x", "a", "b", "a", "b"]) == [(0, 1), (1, 2)]
    assert matched(["b"], ["a", "b", "b"]) == [(0, 1)]
    assert matched(["a"], ["b"]) == matched([], ["a"]) == matched(["a"], []) == []


_TEXT = st.text(alphabet=st.sampled_from("ab1 .,!$%'-\n(…你"), max_size=60)
_WORDS = st.lists(st.lists(st.sampled_from(["a", "b", "ab", "one", "a's"]), min_size=1, max_size=6), max_size=5)


@settings(max_examples=200, deadline=None)
@given(_TEXT, _WORDS)
def test_every_character_once_and_times_that_never_descend(text: str, sentences: list[list[str]]) -> None:
    parts = aligned(text, *(" ".join(sentence) for sentence in sentences))
    if not sentences:
        assert parts == []
        return
    assert "".join(text_of(part.written) for part in parts) == text
    for times in ([part.written for part in parts], [part.spoken for part in parts]):
        starts = [start for part in times for start in part.starts]
        ends = [end for part in times for end in part.ends]
        assert all(before <= after for before, after in itertools.pairwise(starts))
        assert all(start <= end for start, end in zip(starts, ends, strict=True))
