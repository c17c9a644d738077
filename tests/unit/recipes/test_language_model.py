"""The language model's training: layouts are the served ones, the exported file is what was
trained, and it learns to read.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.model_directory import ModelDirectory
from recipes.demo_voice.language_model import train as command
from recipes.demo_voice.language_model.evaluate import whole_form
from recipes.demo_voice.language_model.layouts import NOTHING, Ids, Layouts, Vocabulary
from recipes.demo_voice.language_model.material import Cut, Examples, Material, Mixture, find_cuts
from recipes.demo_voice.language_model.network import (
    HEAD,
    HEAD_BIAS,
    NEVER,
    build,
    initialise,
    published,
    start_from,
)
from recipes.demo_voice.language_model.supply import EndlessBatches, in_batches
from recipes.demo_voice.language_model.train import Options, Training
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.tokenizer import codes as fsq
from recipes.demo_voice.tokenizer import trained
from recipes.demo_voice.tokenizer.network import Network, Sizes
from recipes.demo_voice.tokenizer.trained import Phones
from recipes.demo_voice.training import parameter_store
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.training.speech import Speech
from services.frontend.tokenizers.phonemes.symbols import PHONES, SYMBOLS
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.weights import load_tensors
from services.llm.generation.config import LlmConfig, SamplingParameters, read_config
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.sampling import Scores
from services.llm.generation.script import Script, Table, WholeText
from tests.unit.recipes import small_work

SPEECH = COSYVOICE2.speech
RESERVED = 6562
CONFIG = LlmConfig(
    speech=SPEECH,
    hidden_size=32, intermediate_size=48, layers=2, heads=4, kv_heads=2, head_size=8, text_vocabulary=80,
    rope_theta=1e4,
    rms_norm_eps=1e-6, sampling=SamplingParameters(tau_r=0.5), text_block=4, speech_block=4,
)  # fmt: skip
KNOWN = Vocabulary(text_rows=80, codes=27)
LAYOUTS = Layouts(KNOWN, CONFIG.text_block, CONFIG.speech_block)
TEXT = np.arange(10, 20, dtype=np.int16)
CODES = np.arange(3, 16, dtype=np.int16)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Says:
    """Chooses the codes of a sentence, then the end."""

    def __init__(self, *codes: int) -> None:
        self.left = list(codes)

    def choose(self, scores: Scores, made: object) -> int:
        return self.left.pop(0) if self.left else SPEECH.end


def served(script: Script) -> tuple[list[int], list[int]]:
    """Inputs that a script feeds and what it decides behind each, in ids of the training."""
    first = {Table.SPECIAL: 0, Table.TEXT: KNOWN.first_text, Table.SPEECH: KNOWN.first_code}
    inputs: list[int] = []
    targets: list[int] = []
    while script.ready:
        taken = script.take()
        inputs += [first[each.table] + each.row for each in taken]
        token = script.decide(np.zeros(SPEECH.rows, np.float32))
        ended = KNOWN.fill if script.finish is None else KNOWN.end
        targets += [NOTHING] * (len(taken) - 1) + [ended if token is None else token]
    return inputs, targets


def test_known_text_is_laid_out_as_it_is_served() -> None:
    script = WholeText(CONFIG, Prompt(), tuple(TEXT.tolist()), Profile.CONTINUOUS, Says(*CODES.tolist()))
    inputs, targets = LAYOUTS.whole(TEXT, CODES)
    assert (inputs.tolist(), targets.tolist()) == served(script)


def test_arriving_text_is_laid_out_as_it_is_served() -> None:
    script = ContinuousText(CONFIG, Prompt(), Says(*CODES.tolist()))
    script.feed(TEXT.tolist())
    inputs, targets = served(script)
    script.end()
    more_inputs, more_targets = served(script)
    laid_out = LAYOUTS.arriving(TEXT, CODES)
    assert (laid_out[0].tolist(), laid_out[1].tolist()) == (inputs + more_inputs, targets + more_targets)
    assert laid_out[1].tolist().count(KNOWN.fill) == 2


def test_speech_too_short_for_its_blocks_is_laid_out_as_known_text() -> None:
    assert LAYOUTS.arriving(TEXT, CODES[:7])[0].tolist() == LAYOUTS.whole(TEXT, CODES[:7])[0].tolist()


def test_room_for_speech_is_what_the_served_bounds_leave() -> None:
    form = whole_form(LAYOUTS, CONFIG, TEXT, TEXT[:3], CODES[:5])
    assert (
        form.inputs[: 1 + 3 + 10 + 1 + 5].tolist()
        == LAYOUTS.whole(np.concatenate([TEXT[:3], TEXT]), CODES[:5])[0].tolist()
    )
    assert (form.free.sum(), (form.free & ~form.may_end).sum()) == (200, 20)


def test_words_are_cut_apart_in_the_middle_of_the_gap_but_not_at_marks() -> None:
    text = np.array([1, 30, 31, 2, 32, 7, 2, 33, 7], np.int16)  # ^ a b _ c , _ d ,
    places = np.array([-1, 1, -1, 2, 2, -1, -1, 4, -1, 7, -1])
    assert find_cuts(text, places, blank=2, marks=np.array([7])) == [Cut(text=4, token=6)]


def spoken(voice: str, offset: int) -> tuple[list[np.ndarray], list[np.ndarray], list[list[Cut]], list[str]]:
    """Sentences of three words of two ids, three codes to an id, each code its id."""
    text = [np.array([1, *range(offset + 6 * number, offset + 6 * number + 6)], np.int16) for number in range(3)]
    return text, [np.repeat(ids[1:], 3) for ids in text], [[Cut(3, 6), Cut(5, 12)]] * 3, [voice] * 3


def test_spliced_sentences_say_their_text_in_one_voice() -> None:
    parts = [spoken("low", 100), spoken("high", 200)]
    material = Material(
        text=[ids for part in parts for ids in part[0]],
        codes=[ids for part in parts for ids in part[1]],
        phonemes=[""] * 6,
        cuts=[cuts for part in parts for cuts in part[2]],
        voices=[voice for part in parts for voice in part[3]],
        training=list(range(6)),
        held_out=[],
    )
    examples, rng = Examples(material, Mixture(longest=60)), np.random.default_rng(0)
    known = {tuple(ids.tolist()) for ids in material.text}
    drawn = [examples.draw(rng) for _ in range(200)]
    assert sum(tuple(text.tolist()) not in known for text, _ in drawn) > 100
    for text, codes in drawn:
        assert codes.tolist() == np.repeat(text[text != 1], 3).tolist()
        assert text[0] == 1
        assert len(set((text[text != 1] // 100).tolist())) == 1
        assert len(text) + len(codes) <= 60


def test_the_published_tensors_score_as_those_in_training() -> None:
    leaves = initialise(CONFIG, KNOWN, torch.device("cpu"))
    inputs, _ = LAYOUTS.whole(TEXT, CODES)
    training = build(CONFIG, leaves)
    expected = training.scores(training.hidden(torch.from_numpy(inputs).long()[None])[0]).log_softmax(-1)
    first = 100
    model = SpeechTokenModel.build(CONFIG, published(leaves, KNOWN, first), torch.device("cpu"))
    script = WholeText(
        CONFIG, Prompt(speech_tokens=tuple((CODES + first).tolist())), tuple(TEXT.tolist()), Profile.CONTINUOUS, Says()
    )
    hidden = model.forward(model.embed(script.take()), SequenceCache.reserve(CONFIG, 64, model.device))
    log_probabilities = model.log_probabilities(hidden)
    torch.testing.assert_close(log_probabilities[:, first : first + KNOWN.codes], expected[:, : KNOWN.codes])
    torch.testing.assert_close(log_probabilities[:, [SPEECH.end, SPEECH.fill]], expected[:, [KNOWN.end, KNOWN.fill]])
    assert (log_probabilities[:, [0, first - 1, first + KNOWN.codes, RESERVED]] < NEVER / 2).all()


def test_one_batch_is_learnt_and_a_checkpoint_goes_on(tmp_path: Path) -> None:
    options = Options(dropout=0.0, corruption=0.0, smoothing=0.0, warm_up=5, rate=5e-3)
    training, resumed = (Training(CONFIG, KNOWN, options, Schedule(7, steps=60), torch.device("cpu")) for _ in range(2))
    batch = in_batches([LAYOUTS.whole(TEXT + row, CODES + row) for row in range(8)], 10_000)[0].on(training.device)
    losses = [float(training.step(*batch)["train_loss"]) for _ in range(40)]
    assert losses[0] > 3.0
    assert losses[-1] < 0.6 * losses[0]
    parameter_store.save(tmp_path / parameter_store.CHECKPOINT, training.state())
    resumed.schedule, content = parameter_store.begun(tmp_path, 7, 60, torch.device("cpu"))
    resumed.load(content)
    assert resumed.schedule.step == 40
    after, expected = (each.step(*batch)["train_loss"] for each in (resumed, training))
    torch.testing.assert_close(after, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"average": None}, "not a checkpoint"),
        ({"parameters": {"other": torch.zeros(1)}}, r"missing tensors .*'other'"),
        ({"parameters": {"llm_decoder.bias": torch.zeros(1)}}, r"llm_decoder.bias is \[1\] in the checkpoint"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(changed: dict[str, dict[str, Tensor]], message: str) -> None:
    training = Training(CONFIG, KNOWN, Options(), Schedule(7), torch.device("cpu"))
    content = training.state()
    for part, tensors in changed.items():
        if tensors is None:
            del content[part]
        else:
            content[part] |= tensors
    with pytest.raises(ValueError, match=message):
        training.load(content)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Speech, and a tokenizer that never learnt anything but says of every phone which code it
    is.
    """
    small_work.make(tmp_path)
    directory = small_work.smaller(
        tmp_path, {"llm_input_size: 256": "llm_input_size: 32", "llm_output_size: 256": "llm_output_size: 32"}
    )
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = directory.file("CosyVoice-BlankEN/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | small))
    speech, folder = Speech.read(tmp_path), tmp_path / "tokenizer"
    phones = Phones.among({symbol: place for place, symbol in enumerate(SYMBOLS)})
    sizes = Sizes(digits=4, phones=len(phones.symbols), voices=2, width=8)
    folder.mkdir()
    trained.write(folder, dict(Network(sizes).state_dict()), sizes, phones, list(small_work.VOICES))
    codes = [[PHONES.index(symbol) for symbol in each.phonemes if symbol in PHONES] for each in speech.utterances]
    places = [phones.places(each.phonemes) for each in speech.utterances]
    for name, rows in ((trained.CODES, codes), (trained.PLACES, places)):
        np.save(folder / name, np.repeat(np.concatenate(rows), small_work.TOKENS_PER_PHONE).astype(np.int16))
    np.save(folder / trained.ALIGNED, np.ones(len(speech.utterances), np.bool_))
    return tmp_path


def test_the_command_leaves_a_file_that_the_service_loads(work: Path) -> None:
    assert any(Material.read(work, "tokenizer").cuts)
    options = {"steps": 3, "positions": 400, "processes": 0, "report": 0, "checkpoint": 0, "heard": 1, "device": "cpu"}
    command.main([str(work), *(f"--{name}={value}" for name, value in options.items())])
    assert [json.loads(line) for line in (work / "llm" / "journal.jsonl").read_text().splitlines()][-1].keys() >= {
        "loss",
        "accuracy",
        "end",
        "fill",
        "phone_error",
        "prompted_phone_error",
        "arriving_run_on",
    }
    directory = model_directory(work)
    (work / "llm" / "llm.pt").rename(directory.path / "llm.pt")
    tensors = load_tensors(ModelDirectory(directory.path), read_config(directory))
    first = fsq.first_id(4)
    rows = tensors["speech_embedding.weight"].abs().sum(1).nonzero()[:, 0].tolist()
    assert rows == list(range(first, first + fsq.count(4)))
    assert tensors["llm_decoder.bias"][RESERVED] == NEVER


@pytest.mark.parametrize(("begins", "heard"), [(0.0, {0.22}), (0.6, {0.0, 0.22})])
def test_arriving_text_is_heard_from_where_it_is_asked_for(
    work: Path, monkeypatch: pytest.MonkeyPatch, begins: float, heard: set[float]
) -> None:
    shares: list[float] = []
    sequence = EndlessBatches._sequence

    def noted(supply: EndlessBatches, rng: np.random.Generator, share: float) -> tuple[Ids, Ids]:
        shares.append(round(share, 2))
        return sequence(supply, rng, share)

    monkeypatch.setattr(EndlessBatches, "_sequence", noted)
    monkeypatch.setattr("recipes.demo_voice.language_model.supply._POOL", 2)
    options = {"steps": 10, "positions": 400, "processes": 0, "heard": 1, "device": "cpu", "arriving-from": begins}
    command.main([str(work), *(f"--{name}={value}" for name, value in options.items())])
    assert set(shares) == heard


def test_a_training_begins_with_a_finished_model() -> None:
    finished = initialise(CONFIG, KNOWN, torch.device("cpu"))
    finished[HEAD_BIAS].data.normal_()
    bundled = published(finished, KNOWN, fsq.first_id(3))
    wider = Vocabulary(text_rows=80, codes=81)
    leaves = initialise(CONFIG, wider, torch.device("cpu"))
    hidden_code = leaves["speech_embedding.weight"][81].clone()
    start_from(bundled, leaves, wider)
    torch.testing.assert_close(
        leaves["llm.model.model.embed_tokens.weight"], finished["llm.model.model.embed_tokens.weight"]
    )
    speech, head = leaves["speech_embedding.weight"], leaves[HEAD]
    torch.testing.assert_close(speech[:81], finished["speech_embedding.weight"][:27].repeat(3, 1))
    assert torch.equal(speech[81], hidden_code)
    torch.testing.assert_close(head[:81], finished[HEAD][:27].repeat(3, 1))
    torch.testing.assert_close(head[81:], finished[HEAD][27:])
    torch.testing.assert_close(leaves[HEAD_BIAS][81:], finished[HEAD_BIAS][27:])
    same = initialise(CONFIG, KNOWN, torch.device("cpu"))
    start_from(bundled, same, KNOWN)
    again = published(same, KNOWN, fsq.first_id(3))
    assert all(torch.equal(again[name], tensor) for name, tensor in bundled.items())


def test_a_model_of_other_sizes_is_refused() -> None:
    bundled = published(initialise(CONFIG, KNOWN, torch.device("cpu")), KNOWN, fsq.first_id(3))
    other = initialise(replace(CONFIG, intermediate_size=40), KNOWN, torch.device("cpu"))
    with pytest.raises(ValueError, match="in the file, expected"):
        start_from(bundled, other, KNOWN)
