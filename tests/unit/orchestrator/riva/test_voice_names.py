"""Which voice speaks for a name of Riva's, and what the list of voices says."""

import pytest

from cosyserve.v1 import voice_pb2
from services.orchestrator.riva.voice_names import configurations, is_chosen_here, mismatch, own_name, voice_of


def voice(name: str, language: str, sex: str = "", *, default: bool = False) -> voice_pb2.VoiceSummary:
    labels = {"sex": sex} if sex else {}
    return voice_pb2.VoiceSummary(id=name, language_code=language, labels=labels, is_default=default)


VOICES = [
    voice("amy", "en-GB", "female"),
    voice("ben", "en-US", "male"),
    voice("chen", "zh-CN", "male", default=True),
    voice("dora", "de", "female"),
    voice("plain", ""),
]


@pytest.mark.parametrize(
    ("name", "language", "chosen"),
    [
        ("", "", ""),
        ("", "en-US", "amy"),
        ("", "zh", "chen"),
        ("", "de_DE", "dora"),
        ("", "fr-FR", ""),
        ("Magpie-Multilingual.EN-US.Aria", "en-US", "amy"),
        ("Magpie-Multilingual.EN-US.Jason.Calm", "zh-CN", "ben"),
        ("Magpie-Multilingual.ZH-CN.Mia", "en-US", "amy"),
        ("Magpie-Multilingual.DE-DE.Somebody", "en-US", "dora"),
        ("Magpie-ZeroShot.Female-1", "de-DE", "dora"),
        ("English-US.Male-1", "en-US", "ben"),
        ("English-US-Female-1", "en-US", "amy"),
        ("English-US-RadTTS.Male-1", "", "ben"),
    ],
)
def test_a_voice_is_chosen(name: str, language: str, chosen: str) -> None:
    assert is_chosen_here(name)
    assert voice_of(name, language, VOICES) == chosen


def test_a_voice_of_that_very_name_is_it() -> None:
    name = "English-US.Female-1"
    assert voice_of(name, "en-US", [*VOICES, voice(name, "")]) == name


@pytest.mark.parametrize("name", ["nobody", "amy", "Anna-US.v2", "cosyserve.amy"])
def test_any_other_name_is_that_of_a_voice(name: str) -> None:
    assert not is_chosen_here(name)


def test_full_names() -> None:
    assert [own_name(name) for name in ("cosyserve.amy", "amy", "cosyserve.a.b")] == ["amy", "amy", "a.b"]


def test_a_language_that_is_not_the_voices() -> None:
    assert mismatch("amy", "en-US", VOICES) is None
    assert mismatch("plain", "en-US", VOICES) is None
    assert mismatch("nobody", "en-US", VOICES) is None
    said = mismatch("amy", "zh-CN", VOICES)
    assert said == "language_code is zh-CN, voice_name is a voice of en-GB: it speaks with the accent of its language"


def test_the_list_has_every_voice_by_its_language() -> None:
    listed = [dict(config.parameters) for config in configurations([*VOICES, voice("odd,name:1", "en-US")])]
    assert [(each["language_code"], each["subvoices"]) for each in listed] == [
        ("zh-CN", "chen:0"),
        ("en-GB", "amy:0"),
        ("en-US", "ben:0"),
        ("de", "dora:0"),
        ("und", "plain:0"),
    ]
    assert {each["voice_name"] for each in listed} == {"cosyserve"}
