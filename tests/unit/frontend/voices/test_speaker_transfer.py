"""Transfer between spk2info.pt and the storage in both layouts, including hostile files."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts.prompt_reader import voice_model
from services.frontend.speaker_transfer import main
from services.frontend.voices.blobs import open_blobs
from services.frontend.voices.stored_voice import Origin, StoredVoice
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import Labels
from services.frontend.voices.voice_store import VoiceStore
from tests.unit.frontend.voices.test_speaker_file import TINY, VECTOR, Hostile, zero_shot
from tests.unit.frontend.voices.test_voice_store import read_back

TRITON = {
    "prompt_text": "hi there",
    "speech_token": torch.arange(10)[None],
    "speech_feat": torch.ones(1, 20, 80),
    "embedding": VECTOR,
}


def transfer(tmp_path: Path, direction: str, file: Path, *options: str) -> int:
    return main([direction, str(file), "--model", str(TINY), "--voices", str(tmp_path / "voices"), *options])


def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(open_blobs(str(tmp_path / "voices"), voice_model(ModelDirectory(TINY))))


def saved(tmp_path: Path, speakers: object) -> Path:
    torch.save(speakers, tmp_path / "in.pt")
    return tmp_path / "in.pt"


@pytest.mark.parametrize("layout", ["zero-shot", "triton"])
def test_what_goes_in_comes_out(tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    speakers = {"001": TRITON} if layout == "triton" else {"zs": zero_shot(), "sft": {"embedding": VECTOR}}
    assert transfer(tmp_path, "import", saved(tmp_path, speakers)) == 0
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", layout) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{len(speakers)} voices: ")
    back = torch.load(tmp_path / "out.pt", weights_only=True)
    assert set(back) == set(speakers)
    for name, entry in speakers.items():
        for field, value in entry.items():
            if isinstance(value, str):
                assert back[name][field] == value
            else:
                assert torch.equal(back[name][field].to(value.dtype), value), field


def test_only_those_that_are_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, {"a": zero_shot(), "b": zero_shot(), "001": TRITON})
    assert transfer(tmp_path, "import", file, "--only", "b", "--only", "001") == 0
    assert store(tmp_path).ids() == ["001", "b"]
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--only", "b") == 0
    assert list(torch.load(tmp_path / "out.pt", weights_only=True)) == ["b"]


NOTES = (
    ([1], "field cosyserve is a list, expected a mapping"),
    ({"mood": "glad"}, "field cosyserve holds 'mood', which this release does not know"),
    ({"transcript": 3}, "field cosyserve: transcript is a int, expected a text"),
    ({"provenance": "x" * 2001}, "field cosyserve: provenance has 2001 characters, allowed at most 2000"),
    ({"labels": {"a": 1}}, "field cosyserve: labels is no mapping of texts"),
    ({"labels": {"a b": "c"}}, "field cosyserve: metadata.labels has the key 'a b'"),
    ({"language_code": "english!"}, "field cosyserve: language_code is 'english!'"),
    ({"created": "yesterday"}, "field cosyserve: created is 'yesterday', no time of ISO 8601"),
    ({"created": "2026-11-20T10:00:00"}, "field cosyserve: created is '2026-11-20T10:00:00', a time without its zone"),
)


@pytest.mark.parametrize(
    ("speakers", "options", "said"),
    [
        ({"a": zero_shot(), "../x": zero_shot()}, (), "id is '../x'"),
        ({"a": zero_shot(), "b": {}}, (), "voice 'b': field flow_embedding or embedding is missing"),
        ({"a": zero_shot(), "b": Hostile()}, (), "not a file of plain tensors"),
        ({"a": zero_shot()}, ("--only", "b"), "has no voice 'b'"),
        *(({"v": zero_shot() | {"cosyserve": field}}, (), f"voice 'v': {said}") for field, said in NOTES),
    ],
)
def test_a_file_with_one_fault_brings_nothing(
    tmp_path: Path,
    speakers: object,
    options: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert transfer(tmp_path, "import", saved(tmp_path, speakers), *options) == 1
    assert said in capsys.readouterr().err
    assert store(tmp_path).ids() == []
    assert not (tmp_path / "hostile-was-here").exists()


def test_what_a_layout_cannot_hold_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot()}))
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", "triton") == 1
    assert "the voice 'zs' has no transcript, which this layout needs" in capsys.readouterr().err
    assert not (tmp_path / "out.pt").exists()
    assert transfer(tmp_path, "import", tmp_path / "none.pt") == 1
    assert "none.pt: no such file" in capsys.readouterr().err
    assert transfer(tmp_path, "import", tmp_path / "in.pt") == 1
    assert "there is a voice 'zs' already" in capsys.readouterr().err


def test_the_id_of_a_preset_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = saved(tmp_path, {"aa": zero_shot(), "zs_a": zero_shot()})
    assert transfer(tmp_path, "import", file) == 1
    assert (
        "ALREADY_EXISTS: there is a voice 'zs_a' already, which comes with the model; choose others with --only"
        in capsys.readouterr().err
    )
    assert store(tmp_path).ids() == []
    assert transfer(tmp_path, "import", file, "--only", "aa") == 0
    assert store(tmp_path).ids() == ["aa"]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot()})) == 0
    for target in (tmp_path / "missing" / "out.pt", tmp_path / "in.pt" / "out.pt"):
        capsys.readouterr()
        assert transfer(tmp_path, "export", target) == 1
        said = capsys.readouterr()
        assert said.err == f"cosyserve: {target}: cannot be written: {target.parent} is no directory\n"
        assert (said.err.count("\n"), said.out) == (1, "")


@pytest.mark.parametrize("begin", [b"RIFF....WAVE", b"fLaC", b"OggS", b"ID3", b"no archive"])
def test_a_file_of_another_kind_is_refused_without_the_words_of_a_library(
    tmp_path: Path, begin: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sample.wav"
    file.write_bytes(begin + bytes(100))
    assert transfer(tmp_path, "import", file) == 1
    kind = "a recording, not a file of voices; create a voice from it with: cosyserve voices add " + str(file)
    if begin == b"no archive":
        kind = "not a file of plain tensors: it is damaged, another kind of file, or holds more than that"
    assert capsys.readouterr().err == f"cosyserve: {file}: {kind}\n"


def test_voices_of_another_model_are_on_another_shelf(tmp_path: Path) -> None:
    demo = ModelDirectory(TINY.parents[2] / "models" / "demo")
    assert voice_model(demo) != voice_model(ModelDirectory(TINY))
    transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot()}))
    assert VoiceStore(open_blobs(str(tmp_path / "voices"), voice_model(demo))).ids() == []


NOTED = Labels("Anna", "warm, close", {"sex": "female", "team": "demo"})
ORIGIN = Origin(
    "Dr. Who said 3 words.", "en-GB", "2026-11-20T10:00:00.000001+00:00", "Anna, for herself, by letter", "request-1"
)
IDS, TOKENS = (5, 6, 7, 8), tuple(range(100, 110))
VOICES = {
    "whole": Voice("whole", IDS, TOKENS, bytes(4 * 80 * 20), bytes(4 * 192)),
    "cut": Voice("cut", IDS, TOKENS, bytes(4 * 80 * 14), bytes(4 * 192)),
    "vector": Voice("vector", (), (), b"", bytes(4 * 192)),
}


@pytest.mark.parametrize(("layout", "voices"), [("zero-shot", ("cut", "vector", "whole")), ("triton", ("whole",))])
def test_all_that_is_known_of_a_voice_comes_back(tmp_path: Path, layout: str, voices: tuple[str, ...]) -> None:
    """The vector alone is a separate layout, which export chooses for a voice without a prompt. The
    ids of the transcript differ from those that the tokenizer gives for its written form, as for
    each text that is normalised before it is encoded.
    """
    for name in voices:
        store(tmp_path).add(StoredVoice(VOICES[name], ORIGIN), NOTED)
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", layout) == 0
    for name in voices:
        store(tmp_path).remove(name)
    assert transfer(tmp_path, "import", tmp_path / "out.pt") == 0
    again = store(tmp_path)
    assert [(entry.id, entry.language_code, labels) for entry, labels in again.entries_with_labels(again.ids())] == [
        (n, "en-GB", NOTED) for n in voices
    ]
    for name in voices:
        assert read_back(again, name) == StoredVoice(VOICES[name], replace(ORIGIN, request_id=""))


def test_a_cut_prompt_is_refused_by_the_layout_that_has_one_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path).add(StoredVoice(VOICES["cut"], ORIGIN), NOTED)
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", "triton") == 1
    said = capsys.readouterr().err
    assert "the voice 'cut' has a cut prompt (the decoder receives 7 of its 10 speech tokens)" in said
    assert "zero-shot holds it" in said
    assert not (tmp_path / "out.pt").exists()


def test_a_transcript_that_was_changed_in_the_file_is_encoded_again(tmp_path: Path) -> None:
    store(tmp_path).add(StoredVoice(VOICES["whole"], ORIGIN), NOTED)
    assert transfer(tmp_path, "export", tmp_path / "out.pt", "--layout", "triton") == 0
    speakers = torch.load(tmp_path / "out.pt", weights_only=True)
    speakers["other"] = speakers.pop("whole") | {"prompt_text": "hi there"}
    assert transfer(tmp_path, "import", saved(tmp_path, speakers)) == 0
    stored = read_back(store(tmp_path), "other")
    assert stored.origin.transcript == "hi there"
    assert stored.voice.prompt_text_ids != IDS
    assert stored.origin.provenance == ORIGIN.provenance


def test_a_file_without_notes_says_where_it_came_from(tmp_path: Path) -> None:
    assert transfer(tmp_path, "import", saved(tmp_path, {"zs": zero_shot(), "001": TRITON})) == 0
    for name, transcript in (("zs", ""), ("001", "hi there")):
        stored = read_back(store(tmp_path), name)
        assert (stored.origin.transcript, stored.origin.provenance) == (transcript, "imported from in.pt")


def test_the_owner_of_a_voice_comes_back_and_a_voice_of_everyone_has_none(tmp_path: Path) -> None:
    for name, owner in (("whole", "clinic"), ("vector", "")):
        store(tmp_path).add(StoredVoice(VOICES[name], ORIGIN), NOTED, owner)
    assert transfer(tmp_path, "export", tmp_path / "out.pt") == 0
    fields = {name: entry["cosyserve"] for name, entry in torch.load(tmp_path / "out.pt", weights_only=True).items()}
    assert fields["whole"]["owner"] == "clinic"
    assert "owner" not in fields["vector"]  # a release before owners reads it
    for name in ("whole", "vector"):
        store(tmp_path).remove(name)
    assert transfer(tmp_path, "import", tmp_path / "out.pt") == 0
    again = store(tmp_path)
    assert {entry.id: entry.owner for entry, _ in again.entries_with_labels(again.ids())} == {
        "whole": "clinic",
        "vector": "",
    }
