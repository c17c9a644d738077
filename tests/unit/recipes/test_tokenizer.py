"""The recipe's speech tokenizer: codes, alignment, batches, augmentation, a training of a few steps
and the files that it leaves.
"""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from recipes.demo_voice.tokenizer import codes, train
from recipes.demo_voice.tokenizer.examples import Examples
from recipes.demo_voice.tokenizer.export import read_encoder, write_onnx
from recipes.demo_voice.tokenizer.label import align
from recipes.demo_voice.tokenizer.network import Network, Sizes, mask_of
from recipes.demo_voice.tokenizer.trained import (
    ALIGNED,
    CODES,
    ONNX,
    PLACES,
    SETTINGS,
    WEIGHTS,
    Phones,
)
from recipes.demo_voice.training import parameter_store, progress
from recipes.demo_voice.training.progress import Schedule
from services.frontend.tokenizers.phonemes.symbols import SYMBOLS

SIZES = Sizes(digits=5, phones=7, voices=3, width=32)


@pytest.fixture(scope="module")
def examples(work: Path) -> Examples:
    return Examples(work, torch.device("cpu"))


@pytest.fixture
def no_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "plot", lambda *_: None)


def network() -> Network:
    torch.manual_seed(0)
    return Network(SIZES).eval().requires_grad_(False)


def test_codes_are_cosyvoice_ids_with_the_upper_digits_in_the_middle() -> None:
    assert (codes.first_id(5), codes.first_id(6), codes.first_id(8)) == (3159, 2916, 0)
    every = torch.arange(codes.count(5))
    levels = codes.levels_of(every, 5)
    assert torch.equal(codes.codes_of(levels), every)
    widest = torch.cat([levels, torch.zeros(len(every), 3)], 1)
    assert torch.equal(codes.codes_of(widest), every + codes.first_id(5))


def test_rows_of_a_padded_batch_come_out_as_alone() -> None:
    lengths = torch.tensor([40, 29, 4])
    log_mel, voices = torch.randn(3, 40, 128), torch.tensor([0, 1, 2])
    net, known = network(), torch.ones(3)
    tokens = (lengths + 3) // 4
    values = net.encoder(log_mel, lengths)
    levels = torch.round(codes.bounded(values))
    mask = mask_of(tokens, 10)
    said, sounded = net.phones(levels, mask), net.mel(levels, voices, known, mask)
    for row, (frames, count) in enumerate(zip(lengths.tolist(), tokens.tolist(), strict=True)):
        one = slice(row, row + 1)
        alone = net.encoder(log_mel[one, :frames], lengths[one])
        assert alone.shape == (1, count, SIZES.digits)
        torch.testing.assert_close(alone[0], values[row, :count], atol=1e-5, rtol=1e-5)
        whole = torch.ones(1, count, 1)
        torch.testing.assert_close(net.phones(levels[one, :count], whole)[0], said[row, :count], atol=1e-5, rtol=1e-5)
        mel = net.mel(levels[one, :count], voices[one], known[one], whole)
        torch.testing.assert_close(mel[0], sounded[row, : 2 * count], atol=1e-5, rtol=1e-5)


def best_path(log_probabilities: Tensor, target: list[int]) -> float:
    """Score of the likeliest path, every path tried."""
    times, classes = log_probabilities.shape
    paths = itertools.product(range(classes), repeat=times)
    saying = [path for path in paths if [phone for phone, _ in itertools.groupby(path) if phone] == target]
    return max(sum(float(log_probabilities[time, phone]) for time, phone in enumerate(path)) for path in saying)


def test_alignment_finds_the_likeliest_of_all_paths() -> None:
    torch.manual_seed(1)
    log_probabilities = torch.randn(4, 6, 3).log_softmax(-1)
    lengths, counts = torch.tensor([6, 5, 4, 2]), torch.tensor([2, 3, 2, 2])
    targets = torch.tensor([[1, 2, 0], [1, 1, 2], [2, 2, 0], [1, 1, 0]])
    places, exists = align(log_probabilities, lengths, targets, counts)
    assert (exists.tolist(), places[3].tolist()) == ([True, True, True, False], [-1] * 6)
    for row in range(3):
        length, target = int(lengths[row]), targets[row, : counts[row]].tolist()
        path = places[row].tolist()
        assert path[length:] == [-1] * (6 - length)
        assert [place for place, _ in itertools.groupby(path) if place >= 0] == list(range(len(target)))
        score = sum(float(log_probabilities[row, t, target[p] if p >= 0 else 0]) for t, p in enumerate(path[:length]))
        assert score == pytest.approx(best_path(log_probabilities[row, :length], target))


def test_phones_are_the_sounds_and_their_places_among_the_text_ids() -> None:
    phones = Phones.among({symbol: place for place, symbol in enumerate(SYMBOLS)})
    assert not set(phones.symbols) & set("_^ ˈˌ.,;:!?—…()")
    said = "wˈʌn, tˈu."
    assert [phones.symbols[phone - 1] for phone in phones.of(said)] == list("wʌntu")
    assert ["^wˈʌn, tˈu."[place] for place in phones.places(said)] == list("wʌntu")


def test_loss_falls_on_one_batch(examples: Examples) -> None:
    # The warm-up is long: 15 steps end at a rate of 0.04.
    options = train.parser().parse_args(["", "--width", "32", "--dropout", "0", "--rate", "0.5"])
    training = train.Training(examples, Schedule(60), options)
    before, *_, after = (training.step() for _ in range(15))
    assert after["train_ctc"] < 0.7 * before["train_ctc"]
    assert after["train_mel"] < 0.8 * before["train_mel"]


@pytest.mark.usefixtures("no_plot")
def test_training_leaves_what_later_stages_read(work: Path, examples: Examples) -> None:
    run = [str(work), "--device", "cpu", "--width", "32", "--minutes", "60", "--digits", "4", "--name", "small"]
    train.main([*run, "--steps", "2", "--report-seconds", "0", "--save-seconds", "0"])
    folder = work / "small"
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    assert (settings["digits"], settings["codes"], settings["first_id"]) == (4, 81, 3240)
    assert (folder / WEIGHTS).stat().st_size < 1e6

    tokens, first = examples.speech.tokens, examples.speech.first
    codes_read, places, aligned = (np.load(folder / name) for name in (CODES, PLACES, ALIGNED))
    assert (codes_read.dtype, places.dtype, aligned.dtype) == (np.int16, np.int16, np.bool_)
    assert len(codes_read) == len(places) == sum(tokens)
    assert aligned.all()
    for member, utterance in enumerate(examples.speech.utterances):
        spoken = [p for p in places[first[member] :][: tokens[member]].tolist() if p >= 0]
        text = "^" + utterance.phonemes
        assert [text[place] for place, _ in itertools.groupby(spoken)] == [s for s in text if s in settings["phones"]]

    session = onnxruntime.InferenceSession(folder / ONNX, providers=["CPUExecutionProvider"])
    feats, length = session.get_inputs()
    assert (feats.type, length.type, session.get_outputs()[0].type) == (
        "tensor(float)",
        "tensor(int32)",
        "tensor(int32)",
    )
    log_mel = examples.log_mel(1)
    heard = {feats.name: log_mel.T[None].numpy(), length.name: np.array([len(log_mel)], np.int32)}
    (ids,) = session.run(None, heard)
    assert (ids[0] - 3240).tolist() == codes_read[first[1] :][: tokens[1]].tolist()
    (shorter,) = session.run(None, heard | {length.name: np.array([21], np.int32)})
    (cut,) = session.run(None, {feats.name: log_mel.T[None, :, :21].numpy(), length.name: np.array([21], np.int32)})
    assert shorter.shape == (1, 6)
    assert shorter.tolist() == cut.tolist()

    train.main([*run, "--steps", "3"])
    steps = [json.loads(line)["step"] for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (steps[0], steps[-1]) == (1, 3)


@pytest.mark.usefixtures("no_plot")
def test_a_kept_encoder_gives_the_codes_that_it_gave_while_its_readers_learn(work: Path) -> None:
    run = [str(work), "--device", "cpu", "--width", "32", "--minutes", "60", "--digits", "4", "--report-seconds", "0"]
    train.main([*run, "--name", "first", "--steps", "1"])
    train.main([*run, "--name", "second", "--steps", "2", "--seed", "2", "--encoder", str(work / "first" / ONNX)])
    assert np.array_equal(np.load(work / "first" / CODES), np.load(work / "second" / CODES))
    weights = [parameter_store.load(work / name / WEIGHTS) for name in ("first", "second")]
    equal = {name.split(".")[0]: True for name in weights[0]}
    for name, tensor in weights[0].items():
        equal[name.split(".")[0]] &= torch.equal(tensor, weights[1][name])
    assert equal == {"encoder": True, "phones": False, "mel": False}
    with pytest.raises(ValueError, match=r"'halve.weight' is \[32, 128, 3\], expected \[48, 128, 3\]"):
        read_encoder(work / "first" / ONNX, Network(replace(SIZES, width=48)).encoder)


@pytest.mark.usefixtures("no_plot")
def test_a_kept_tokenizer_encodes_and_aligns_as_it_did(work: Path, tmp_path: Path) -> None:
    run = [str(work), "--device", "cpu"]
    train.main([*run, "--width", "32", "--minutes", "60", "--digits", "4", "--name", "before", "--steps", "1"])
    before, after = work / "before", work / "after"
    train.main([*run, "--name", "after", "--keep", str(before)])
    for name in (CODES, PLACES, ALIGNED):
        assert np.array_equal(np.load(before / name), np.load(after / name))
    for name in (WEIGHTS, SETTINGS, ONNX):
        assert (before / name).read_bytes() == (after / name).read_bytes()
    settings = json.loads((before / SETTINGS).read_text(encoding="utf-8"))
    settings["phones"][:2] = reversed(settings["phones"][:2])
    (before / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(ValueError, match="reads other sounds"):
        train.main([*run, "--name", "other", "--keep", str(before)])


def test_a_table_begins_with_the_rows_of_codes_that_another_tokenizer_had() -> None:
    known = torch.zeros(3**8 + 3, dtype=torch.bool)
    known[codes.first_id(2) : codes.first_id(2) + 9] = True
    assert codes.known_ids(2, known).tolist() == list(range(codes.first_id(2), codes.first_id(2) + 9))
    assert codes.known_ids(1, known).tolist() == list(range(codes.first_id(1), codes.first_id(1) + 3))
    assert codes.known_ids(3, known).tolist() == 3 * codes.known_ids(2, known).tolist()
    known[codes.first_id(2)] = False
    with pytest.raises(ValueError, match="8 codes"):
        codes.known_ids(3, known)


def test_a_training_begins_with_a_finished_encoder_of_fewer_digits(
    examples: Examples, no_plot: None, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    bundled = Network(replace(SIZES, width=16)).encoder
    write_onnx(bundled, tmp_path / "bundled.onnx")
    options = train.parser().parse_args(
        ["work", "--start", str(tmp_path / "bundled.onnx"), "--digits", "6", "--width", "16", "--device", "cpu"]
    )
    training = train.Training(examples, Schedule(1000.0, 100), options)
    encoder = training.network.encoder
    drawn = encoder.digits.weight[5].clone()
    with pytest.raises(ValueError, match=r"digits\.weight"):
        read_encoder(tmp_path / "bundled.onnx", Network(replace(SIZES, width=16, digits=6)).encoder)
    half = {name: weight.half().float() for name, weight in bundled.named_parameters()}
    assert torch.equal(encoder.digits.weight[:5], half["digits.weight"])
    assert torch.equal(encoder.quarter.weight, half["quarter.weight"])
    training.step()
    assert torch.equal(encoder.quarter.weight, half["quarter.weight"])
    assert torch.equal(encoder.digits.weight[5], drawn)
    training.schedule.step = 10
    training.step()
    assert not torch.equal(encoder.quarter.weight, half["quarter.weight"])
    assert not torch.equal(encoder.digits.weight[5], drawn)
