"""Which replies have lost words, and what the report says of them."""

from pathlib import Path

import numpy as np
import pytest

from cosyserve.client.types import WordTime
from tools.quality.recordings.recording import HELD_OUT, Recording, Sentence, read_sentences, write_recording
from tools.quality.replies import REPLIES, main
from tools.quality.short_replies import spoken
from tools.quality.short_replies.report import (
    RateLimit,
    RepliesLimits,
    RepliesQuality,
    Reply,
    as_json,
    as_table,
    judged,
)
from tools.quality.words.alignment import differences
from tools.quality.words.recognition import Recogniser

TEXT = "No problem! Anything else?"


def reply(tiny: str, base: str, *words: tuple[str, float]) -> Reply:
    """words: each with its seconds."""
    return judged(
        1, TEXT, {"tiny.en": tiny, "base": base}, [WordTime(text, 1.0, 1.0 + seconds, 0) for text, seconds in words]
    )


def test_differences_name_the_words() -> None:
    outcome = differences(["a", "b", "c", "d"], ["b", "x", "d", "d"])
    assert (outcome.left_out, outcome.misheard, outcome.added) == (frozenset({0}), frozenset({2}), ("d",))
    assert differences(["some", "one", "came"], ["someone", "came"]) == differences([], [])


@pytest.mark.parametrize(
    ("tiny", "base", "lost"),
    [
        ("No problem. Anything else?", "no problem anything else", False),
        ("No problem.", "No problem!", True),
        ("No problem.", "No problem. Anything else?", False),
        ("Problem, anything else?", "No problem. Anything.", False),
    ],
)
def test_two_ears_have_to_miss_the_same_word(tiny: str, base: str, lost: bool) -> None:
    assert reply(tiny, base).lost is lost


def test_a_word_without_time_is_lost_whatever_was_heard() -> None:
    assert reply(TEXT, TEXT, ("problem", 0.04)).too_short == ("problem",)
    assert not reply(TEXT, TEXT, ("problem", 0.08), ("a", 0.0)).lost


def test_a_word_that_both_mistake_is_misheard_not_lost() -> None:
    outcome = reply("No problem. Anything ells?", "No problem, anything elves.")
    assert (outcome.lost, outcome.misheard) == (False, ("else",))


def test_words_said_twice() -> None:
    assert reply("No problem. Anything else? Else?", "No problem, anything else, else").said_twice == ("else",)
    assert not reply("No problem. Anything else? Else?", TEXT).said_twice
    assert not reply("Oh no problem. Anything else?", "Oh, no problem. Anything else?").said_twice


def test_report_and_limits() -> None:
    good, bad = reply(TEXT, TEXT), reply("No problem.", "No problem! Else?")
    quality = RepliesQuality("anna", 2, [good, bad])
    table = as_table([quality])
    assert "left out: anything" in table
    assert "No problem. | No problem! Else?" in table
    assert table.splitlines()[1].split() == ["anna", "2", "2", "1", "0", "0", "0", "25.00", "%", "12.50", "%"]
    assert RepliesLimits().exceeded(quality) == []
    assert RepliesLimits(lost=1, twice=0, word_error_rate=RateLimit(0.125)).exceeded(quality) == []
    assert RepliesLimits(lost=0, word_error_rate=RateLimit(0.1)).exceeded(quality) == [
        "anna, seed 2: replies with lost words 1, at most 0 allowed",
        "anna, seed 2: word error rate of the replies 0.125, at most 0.1 allowed",
    ]
    report = as_json([quality], ["x"], RateLimit())
    assert (report["ok"], report["runs"][0]["lost"], report["runs"][0]["word_error_rate"]["tiny.en"]) == (
        False,
        1,
        0.25,
    )


@pytest.mark.parametrize(("recorded", "largest"), [(None, 0.03), (0.0043, 0.03), (0.0298, 0.0398)])
def test_a_voice_may_be_a_point_worse_than_the_recordings(recorded: float | None, largest: float) -> None:
    limit = RateLimit(recorded=recorded)
    assert limit.largest == pytest.approx(largest)
    good = RepliesQuality("anna", 1, [reply(TEXT, TEXT)])
    bad = RepliesQuality("bert", 1, [reply("No problem.", "No problem! Else?")])
    assert limit.verdicts([good, bad]).splitlines() == [
        f"word error rate by the better ear, at most {100 * largest:.2f} % "
        + ("(no recordings of the same texts to compare with):" if recorded is None else "(the recordings have ")
        + ("" if recorded is None else f"{100 * recorded:.2f} %):"),
        "  anna, seed 1: 0.00 %, within",
        "  bert, seed 1: 25.00 %, beyond",
    ]
    assert RateLimit(recorded=0.24).exceeded(bad) == []
    assert RateLimit(0.24996).exceeded(bad) == [], "25.00 % of 25.00 %, as printed"
    assert RateLimit(0.24994).verdicts([bad]).endswith("25.00 %, beyond")


def test_the_list_is_held_out_short_and_of_several_sentences() -> None:
    outcome = [each.text for each in read_sentences(REPLIES)]
    assert len(outcome) == len(set(outcome)) == 200
    assert not set(outcome) & {each.text for each in read_sentences(HELD_OUT)}
    assert all(2 <= sum(text.count(mark) for mark in ".?!") <= 4 and len(text) <= 60 for text in outcome)


def test_recordings_of_the_same_texts_give_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = read_sentences(REPLIES)[0]
    for voice in ("anna", "teacher"):
        write_recording(tmp_path / voice, Recording(first, np.zeros(2400, np.float32), 24_000))
    arguments = ["--wavs", str(tmp_path), "--voices", "anna", "--one-ear", "--max-wer", "0.03"]
    monkeypatch.setattr(Recogniser, "text_of", lambda *_: "")
    assert main(arguments) == 1
    assert main([*arguments, "--reference", str(tmp_path / "teacher")]) == 0
    assert "at most 101.00 % (the recordings have 100.00 %)" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--reference", str(tmp_path)])
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "wrong", [["--server", "here:1", "--recording", "a.wav"], ["--count", "0"], ["--seeds", "one"]]
)
def test_what_cannot_be_asked_for(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    assert caught.value.code == 2


def test_nothing_recorded_is_nothing_heard() -> None:
    assert Recogniser().text_of(Recording(Sentence(1, TEXT), np.zeros(0, np.float32), 24_000)) == ""


def test_without_the_weights_of_base_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.quality.words.recognition.importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match="extra `quality`"), spoken.ears(one_ear=False, threads=1):
        pass
