"""Voices of one generation are not spoken by a model of another; and the system part that prompts
of CosyVoice3 begin with.
"""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from cosyserve.errors import FailedPrecondition, ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import Generation
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts import recording_reader
from services.frontend.prompts.instruction import instruction_ids
from services.frontend.prompts.prompt_reader import voice_model
from services.frontend.recordings.sound import Sound
from services.frontend.speaker_transfer import export_file, import_file
from services.frontend.voices.blobs import open_blobs
from services.frontend.voices.speaker_file import read_file, voice_of
from services.frontend.voices.stored_voice import Origin, StoredVoice, from_bytes, now, to_bytes
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_notes import FIELD, Labels, Notes, notes_field
from services.frontend.voices.voice_store import VoiceStore
from tests.unit.frontend import models

END = 259
SYSTEM = (*b"You are a helpful assistant.", END)
TINY, TINY3 = models.ROOT / models.TINY, models.ROOT / models.TINY3


@pytest.fixture
def system() -> SystemPart:
    return SystemPart(COSYVOICE3, models.tokenizer(models.TINY3))


def entry(text: Any, **more: Any) -> dict[str, Any]:
    tokens = torch.arange(10, dtype=torch.int32)[None]
    return {
        "prompt_text": text if isinstance(text, str) else torch.tensor([text], dtype=torch.int32),
        "llm_prompt_speech_token": tokens,
        "flow_prompt_speech_token": tokens,
        "prompt_speech_feat": torch.ones(1, 20, 80),
        "flow_embedding": torch.ones(1, 192),
        **more,
    }


def test_the_system_part(system: SystemPart) -> None:
    assert system.ids == SYSTEM
    assert system.prefixed((7, 8)) == (*SYSTEM, 7, 8)
    assert system.prefixed((*SYSTEM, 7)) == (*SYSTEM, 7)
    assert system.removed_from(" You are a helpful assistant.<|endofprompt|>hi") == "hi"
    assert system.removed_from("You are a helpful assistant. hi") == "You are a helpful assistant. hi"
    none = SystemPart(COSYVOICE2, models.tokenizer(models.TINY))
    assert (none.ids, none.prefixed((7,)), none.before("x")) == ((), (7,), "x")
    with pytest.raises(ModelError, match=r"the tokenizer has no <\|endofprompt\|>, which CosyVoice3 needs"):
        SystemPart(COSYVOICE3, models.tokenizer(models.DEMO))


@pytest.mark.parametrize(
    "written",
    [
        "请用广东话表达。",
        "请用广东话表达。<|endofprompt|>",
        "You are a helpful assistant. 请用广东话表达。",
        " You are a helpful assistant. 请用广东话表达。<|endofprompt|> ",
    ],
)
def test_an_instruction_has_the_system_part_once(system: SystemPart, written: str) -> None:
    expected = [*"You are a helpful assistant. 请用广东话表达。".encode(), END]
    assert instruction_ids(written, models.tokenizer(models.TINY3), system) == expected


def test_the_recorded_voice_has_the_recorded_ids() -> None:
    pairs = read_file(TINY3 / "spk2info.pt", models.tokenizer(models.TINY3), COSYVOICE3)
    voices = {voice.id: voice for voice, _ in pairs}
    recorded = np.load(TINY3 / "llm.npz")
    assert voices["zs_a"].prompt_text_ids == tuple(recorded["prompt_text_ids"][0].tolist())
    assert voices["spk_a"].prompt_text_ids == ()


def test_a_prompt_of_another_generation_is_refused(system: SystemPart) -> None:
    old, new = models.tokenizer(models.TINY), models.tokenizer(models.TINY3)
    assert voice_of("a", entry((*SYSTEM, 7)), new, system).prompt_text_ids == (*SYSTEM, 7)
    # A transcript that is text has no system part in any generation.
    assert voice_of("a", entry("hi"), new, system).prompt_text_ids == (*SYSTEM, *b"hi")
    with pytest.raises(ValueError, match=r"prompt_text has no <\|endofprompt\|>, which every prompt of CosyVoice3 has"):
        voice_of("a", entry((7, 8)), new, system)
    with pytest.raises(ValueError, match="begins with the system part of CosyVoice3, so it is of that generation"):
        voice_of("a", entry((*SYSTEM, 7)), old)
    noted = {FIELD: notes_field(Notes(generation="cosyvoice3"))}
    assert voice_of("a", entry((*SYSTEM, 7), **noted), new, system).id == "a"
    for fields, tokenizer, part, made in (
        (noted, old, None, "cosyvoice3"),
        ({FIELD: notes_field(Notes())}, new, system, "cosyvoice2"),
    ):
        with pytest.raises(ValueError, match=f"it was made with a model of {made}"):
            voice_of("a", entry((*SYSTEM, 7), **fields), tokenizer, part)


def test_a_file_of_another_generation_stops_the_start_and_names_the_voice(tmp_path: Path) -> None:
    shutil.copytree(TINY3, tmp_path / "mixed", ignore=shutil.ignore_patterns("*.npz", "*.pt"))
    shutil.copy(TINY / "spk2info.pt", tmp_path / "mixed")
    with pytest.raises(ModelError, match=r"spk2info\.pt: voice 'zs_a': field prompt_text has no <\|endofprompt\|>"):
        read_file(tmp_path / "mixed" / "spk2info.pt", models.tokenizer(models.TINY3), COSYVOICE3)


def stored(text_ids: tuple[int, ...] = ()) -> StoredVoice:
    voice = Voice("anna", text_ids, (1, 2), bytes(4 * 80 * 4), np.ones(192, "<f4").tobytes())
    return StoredVoice(voice, Origin("hi", "en", now(), "she agreed"))


def test_a_stored_voice_knows_its_generation() -> None:
    assert from_bytes(to_bytes(stored())).voice == stored().voice
    new = to_bytes(stored(), "cosyvoice3")
    assert from_bytes(new, "cosyvoice3").voice == stored().voice
    with pytest.raises(FailedPrecondition, match=r"the voice 'anna' was made with a model of cosyvoice3; this one"):
        from_bytes(new)
    with pytest.raises(FailedPrecondition, match="was made with a model of cosyvoice2"):
        from_bytes(to_bytes(stored()), "cosyvoice3")


def test_the_small_models_have_folders_of_their_own() -> None:
    """Their tokenizers are the same files."""
    assert voice_model(ModelDirectory(TINY)) != voice_model(ModelDirectory(TINY3))


def test_a_voice_is_exported_with_its_generation(tmp_path: Path) -> None:
    store = VoiceStore(open_blobs(str(tmp_path / "voices"), "model"), "cosyvoice3")
    store.add(stored((*SYSTEM, 7)), Labels())
    file = tmp_path / "spk2info.pt"
    assert export_file(store, file, [], triton=False) == ["anna"]
    assert torch.load(file, weights_only=True)["anna"][FIELD]["generation"] == "cosyvoice3"
    target = VoiceStore(open_blobs(str(tmp_path / "others"), "model"), "cosyvoice3")
    assert import_file(target, ModelDirectory(TINY3), file, []) == ["anna"]
    with pytest.raises(ModelError, match="voice 'anna': it was made with a model of cosyvoice3"):
        import_file(VoiceStore(open_blobs(str(tmp_path / "old"), "model")), ModelDirectory(TINY), file, [])


@pytest.mark.parametrize("generation", [COSYVOICE2, COSYVOICE3], ids=lambda each: each.name)
def test_a_recording_is_cut_for_the_first_hop_of_its_generation(
    generation: Generation, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Voice("v", (), tuple(range(80)), bytes(4 * 80 * 160), bytes(4 * 192))
    for step in ("check_recording", "trim_silence"):
        monkeypatch.setattr(recording_reader, step, lambda sound, *_: sound)
    system = SystemPart(generation, models.tokenizer(models.TINY3))
    reader = recording_reader.RecordingReader(Mock(read=Mock(return_value=read)), Mock(), Mock(), 1, system)
    sound = Sound(np.zeros(24_000, np.float32), 24_000)
    for cut, left in ((False, 80), (True, {"cosyvoice2": 80, "cosyvoice3": 63}[generation.name])):
        recording = recording_reader.PromptRecording(b"", cut_prompt=cut)
        assert reader.analyse("v", recording, sound).decoder_tokens == left
