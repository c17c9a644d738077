"""From the results of every stage to a model directory that the services read; the networks here
are drawn, not trained.
"""

import math
import tomllib
from pathlib import Path

import pytest
import torch

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice import export, voices
from recipes.demo_voice.features import Features
from recipes.demo_voice.model_files import layout, manifest
from recipes.demo_voice.speaker import network as speaker_network
from recipes.demo_voice.speaker import train as speaker_train
from recipes.demo_voice.tokenizer import trained
from recipes.demo_voice.tokenizer.examples import Examples
from recipes.demo_voice.tokenizer.export import export as export_tokenizer
from recipes.demo_voice.tokenizer.label import label
from recipes.demo_voice.tokenizer.network import Network, Sizes
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.speech import Speech
from services.frontend.loading import read_tokenizer
from services.frontend.tokenizers.phonemes.letter_to_sound import (
    NGrams,
    Row,
    cost_character,
    pair_character,
    write_letters,
)
from services.frontend.tokenizers.phonemes.lexicon import write_lexicon
from services.frontend.voices.speaker_file import read_voices
from services.frontend.voices.voice_notes import FIELD
from services.llm.engine.weights import expected_tensors as llm_tensors
from services.llm.generation.config import read_config as read_llm_config
from services.token2wav.flow.unet.weights import UnetConfig
from services.token2wav.flow.unet.weights import expected_tensors as flow_tensors
from services.token2wav.vocoder.weights import expected_tensors as vocoder_tensors
from services.token2wav.vocoder.weights import read_config as read_vocoder_config
from tests.unit.recipes import small_work

CPU = torch.device("cpu")
FITS = "wˈʌn tˈu θɹˈi fˈɔ nˈO."
"""Twelve phones, of three tokens each: 36, which is 25 and 11."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every folder that the export reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(small_work.SENTENCES, "train", (*small_work.SENTENCES["train"], FITS))
        folder = small_work.make(tmp_path_factory.mktemp("work"))
    torch.manual_seed(0)
    directory = layout.model_directory(folder)
    write_lexicon(directory.path / "phonemes/lexicon.tsv.gz", {"it": "ˈIt", "speaks": "spˈiks"}, {})
    anywhere = Row(cost_character(0), pair_character(0), cost_character(1))
    write_letters(directory.path / "phonemes/letters.tsv.gz", NGrams([("a", "ˈA")], {"": anywhere}))
    make_tokenizer(folder)
    speech = Speech.read(folder)
    shipped = parameter_store.halved(parameter_store.make(speaker_network.shapes(), speaker_network.initial, CPU))
    (folder / speaker_train.FOLDER).mkdir()
    speaker_train.write(folder, shipped, Features.read(folder, speech, CPU, only=("fbank",)))
    for name, expected in {
        "llm/llm.pt": llm_tensors(read_llm_config(directory)),
        "flow/flow.pt": flow_tensors(UnetConfig.read(directory)),
        "vocoder/hift.pt": vocoder_tensors(read_vocoder_config(directory)),
    }.items():
        parameter_store.save(
            folder / name, {tensor: torch.ones(shape, dtype=torch.float16) for tensor, shape in expected.items()}
        )
    return folder


def make_tokenizer(work: Path) -> None:
    examples = Examples(work, CPU)
    sizes = Sizes(digits=5, phones=len(examples.phones.symbols), voices=len(examples.voices), width=32)
    folder = work / "tokenizer"
    trained.write(folder, dict(Network(sizes).state_dict()), sizes, examples.phones, examples.voices)
    tokenizer = trained.TrainedTokenizer.read(folder)
    label(tokenizer, examples, folder)
    export_tokenizer(tokenizer, [examples.log_mel(0)], folder / trained.ONNX)


def test_prompts_end_eleven_past_the_grid() -> None:
    assert [voices.prompt_tokens(tokens, (2, 3)) for tokens in (60, 61, 63, 64, 86, 88, 89, 111)] == [
        None, 61, 61, None, 86, 86, None, None,
    ]  # fmt: skip


def test_the_export_makes_a_directory_that_the_services_read(work: Path, tmp_path: Path) -> None:
    to = tmp_path / "models" / "small"
    (to / "phonemes").mkdir(parents=True)
    for name in ("README.md", "old.pt", "mine.bin"):
        (to / name).write_text(name)
    (to.parent / "manifest.toml").write_text('[small.files]\n"old.pt" = "0"\n')
    export.main([str(work), "--voices", "low,high", "--to", str(to)])
    assert {path.name for path in to.iterdir() if path.is_file()} >= {
        "README.md",
        "mine.bin",
        "llm.pt",
        "campplus.onnx",
    }
    assert not (to / "old.pt").exists()
    entry = tomllib.loads((to.parent / "manifest.toml").read_text())["small"]
    assert entry["files"] == manifest.checksums(to)
    assert set(export.FILES) <= set(entry["files"])
    directory = ModelDirectory(to)
    tokenizer = read_tokenizer(directory)
    assert len(tokenizer.encode("It speaks.")) == len("^ˈIt spˈiks.")
    high, low = read_voices(directory, tokenizer)
    assert (high.id, low.id) == ("high", "low")
    speech = Speech.read(work)
    codes = voices.Corpus.read(work, "tokenizer")
    for voice in (high, low):
        (spoken,) = (each for each in speech.utterances if each.voice == voice.id and each.phonemes == FITS)
        assert voice.prompt_speech_tokens == tuple((codes.codes_of(spoken.number) + codes.first_id).tolist())
        assert (len(voice.prompt_speech_tokens), len(voice.prompt_text_ids)) == (36, len("^" + FITS))
        vector = torch.frombuffer(bytearray(voice.speaker_embedding), dtype=torch.float32)
        assert math.isclose(float(vector.norm()), 1.0, rel_tol=1e-5)


def test_the_same_work_gives_the_same_voices(work: Path) -> None:
    once, again = (voices.voices(voices.Corpus.read(work, "tokenizer"), ["low"])["low"] for _ in range(2))
    assert once.keys() == again.keys()
    assert once.pop(FIELD) == again.pop(FIELD)
    assert all(torch.equal(once[field], again[field]) for field in once)


def test_a_voice_without_recordings_is_named(work: Path) -> None:
    with pytest.raises(ValueError, match="'alto'"):
        voices.voices(voices.Corpus.read(work, "tokenizer"), ["alto"])


def test_another_speaker_encoder_is_noticed(work: Path, tmp_path: Path) -> None:
    other = parameter_store.halved(parameter_store.make(speaker_network.shapes(), speaker_network.initial, CPU))
    parameter_store.save(tmp_path / "speaker.pt", other)
    export.main([str(work), "--voices", "low"])
    with pytest.raises(ModelError, match="ONNX"):
        export.check(ModelDirectory(work / "model"), voices.Corpus.read(work, "tokenizer"), tmp_path / "speaker.pt")


def test_a_stage_that_has_not_ended_is_named(work: Path) -> None:
    with pytest.raises(ModelError, match=r"flow6/flow\.pt: missing"):
        export.main([str(work), "--voices", "low", "--flow", "flow6"])
