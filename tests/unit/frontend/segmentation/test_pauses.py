"""Pauses in a text: valid and invalid forms, independent of the fragmentation."""

import itertools

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from cosyserve.errors import InvalidRequest
from services.frontend.segmentation.pauses import Pause, added, passages
from services.frontend.segmentation.text_units import Units

PIECES = st.sampled_from(
    [
        "Hello. ",
        "world ",
        "[pause 300ms]",
        "[pause 1.5s]",
        '<break time="20ms"/>',
        "<break time='2s' />",
        "[pause ",
        "<break ",
        "[",
        "<",
        "ms]",
        "好。",
        "\n",
        "3.5 ",
    ]
)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a [pause 300ms] b", ["a ", Pause(300), " b"]),
        ("[pause 1.5s]a", [Pause(1500), "a"]),
        ('a<break time="10ms"/>', ["a", Pause(10)]),
        ("a<BREAK TIME='5s' />", ["a", Pause(5000)]),
        ("[pause:20 ms][pause 30ms]", [Pause(20), Pause(30)]),
        ("[pause 3 minutes] [pause] <break/>", ["[pause 3 minutes] [pause] <break/>"]),
        ("<break time='5s\"/>", ["<break time='5s\"/>"]),
        ("", []),
    ],
)
def test_what_is_a_pause(text: str, result: list[str | Pause]) -> None:
    assert list(passages(text)) == result


@pytest.mark.parametrize(
    "tag", ["[pause 9ms]", "[pause 5001ms]", "[pause 5.001s]", '<break time="0s"/>', "[pause 999999s]"]
)
def test_a_pause_outside_the_range_is_refused(tag: str) -> None:
    with pytest.raises(InvalidRequest, match="allowed are 10 to 5000 ms"):
        list(passages(f"a {tag} b"))


def test_pauses_add_up_to_a_minute() -> None:
    waiting = 0
    for _ in range(12):
        waiting = added(waiting, Pause(5000))
    assert waiting == 60_000
    with pytest.raises(InvalidRequest, match="at most 60000 ms"):
        added(waiting, Pause(10))


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 200), max_size=10), st.integers(60, 400))
def test_no_cutting_shows_and_no_pause_is_cut(pieces: list[str], cuts: list[int], longest: int) -> None:
    text = "".join(pieces)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]

    def units(parts: list[str]) -> list[str]:
        cutter = Units(longest)
        return [unit for part in parts for unit in cutter.feed(part)] + [cutter.finish()]

    whole = units([text])
    assert units([text[start:end] for start, end in itertools.pairwise(borders)]) == whole == units(list(text))
    assert "".join(whole) == text
    try:
        pauses = [part for part in passages(text) if isinstance(part, Pause)]
    except InvalidRequest:  # fragments may join to a pause that is too short, which is refused as a whole
        reject()
    assert [part for unit in whole for part in passages(unit) if isinstance(part, Pause)] == pauses
