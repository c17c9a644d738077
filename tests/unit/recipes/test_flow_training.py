"""The flow's training on two humming voices: pieces are cut rightly, the loss falls, and what is
written is what was trained.
"""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cosyserve.spec import MEL_BINS, SPEAKER_DIMENSION
from recipes.demo_voice.features import Features
from recipes.demo_voice.flow import parameters
from recipes.demo_voice.flow.corpus import Corpus, places_of
from recipes.demo_voice.flow.objective import RandomDraws, solve
from recipes.demo_voice.flow.pieces import LENGTHS, Piece, RandomPieces, equally_long
from recipes.demo_voice.flow.train import Shape, Training, Update, train
from recipes.demo_voice.model_files import layout
from recipes.demo_voice.tokenizer import codes as fsq
from recipes.demo_voice.training.progress import Schedule
from recipes.demo_voice.training.speech import Speech
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.solver import Solver
from services.token2wav.flow.unet.estimator import UnetNetwork
from services.token2wav.flow.unet.weights import UnetConfig
from tests.unit.recipes import small_work

CPU = torch.device("cpu")
CODES, FIRST_ID = 27, 3240
SMALLER = {
    "    input_size: 96\n": "    input_size: 16\n",
    "output_size: 192": "output_size: 32",
    "linear_units: 384": "linear_units: 48",
    "num_blocks: 3": "num_blocks: 1",
    "channels: [128]": "channels: [24]",
    "attention_head_dim: 32": "attention_head_dim: 8",
    "num_mid_blocks: 4": "num_mid_blocks: 1",
}


@pytest.fixture(scope="module")
def work(work: Path) -> Path:
    """Codes say where the mel is loudest; a speaker's vectors lie around one of two directions."""
    speech = Speech.read(work)
    small_work.smaller(work, SMALLER)
    features = Features.read(work, speech, CPU, only=("mel",))
    (work / "tokenizer").mkdir()
    loudest = features.mel.float().view(-1, 2, MEL_BINS).mean(1).argmax(1) % CODES
    np.save(work / "tokenizer" / "codes.npy", loudest.numpy().astype(np.int16))
    settings = {"digits": 3, "codes": CODES, "first_id": FIRST_ID}
    (work / "tokenizer" / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (work / "speaker").mkdir()
    vectors = np.random.default_rng(0).normal(size=(len(speech.utterances), SPEAKER_DIMENSION)).astype(np.float32)
    for utterance in speech.utterances:
        vectors[utterance.number, utterance.voice == "high"] += 30
    np.save(work / "speaker" / "embeddings.npy", vectors)
    return work


@pytest.fixture(scope="module")
def features(work: Path, speech: Speech) -> Features:
    return Features.read(work, speech, CPU, only=("mel",))


@pytest.fixture(scope="module")
def held(work: Path, speech: Speech, features: Features) -> Corpus:
    return Corpus.read(work, "tokenizer", speech, features)


@pytest.fixture
def config(work: Path) -> UnetConfig:
    return UnetConfig.read(layout.model_directory(work))


@pytest.fixture
def draws(speech: Speech) -> RandomPieces:
    return RandomPieces(speech, speech.training, np.random.default_rng(1))


def test_a_batch_is_what_the_utterances_hold(speech: Speech, features: Features, held: Corpus) -> None:
    first, tokens = speech.first[1], speech.tokens[1]
    within = Piece(prompt=0, prompt_tokens=0, body=first + 2, tokens=8, end=first + tokens, speaker=1, condition=5)
    behind = Piece(
        prompt=3, prompt_tokens=5, body=first + tokens - 3, tokens=3, end=first + tokens, speaker=12, condition=10
    )
    batch = held.gather([within, behind])
    assert batch.tokens[0].tolist() == held.codes[first + 2 : first + 10].tolist()
    assert batch.ahead[0].tolist() == held.codes[first + 10 : first + 13].tolist()
    assert batch.known.tolist() == [[True] * 3, [False] * 3]
    assert batch.tokens[1].tolist() == [
        *held.codes[3:8].tolist(),
        *held.codes[first + tokens - 3 : first + tokens].tolist(),
    ]
    want = torch.cat((features.mel[6:16], features.mel[2 * (first + tokens - 3) : 2 * (first + tokens)])).float()
    assert torch.equal(batch.mel[1], want)
    assert (batch.prompt.tolist(), batch.condition.tolist()) == ([0, 10], [5, 10])
    # Behind the utterances' rows come the voices' own, by name: row 12 is the mean of the six of
    # "high".
    torch.testing.assert_close(batch.speaker[1], F.normalize(held.vectors[6:12].mean(0), dim=0))


def test_pieces_lose_their_beginning_or_their_end_and_nothing_else() -> None:
    piece = Piece(prompt=100, prompt_tokens=40, body=500, tokens=60, end=560, speaker=0, condition=80)
    front, back = piece.cut(90, front=True), piece.cut(90, front=False)
    assert (front, back) == (replace(piece, prompt=110, prompt_tokens=30, condition=60), replace(piece, tokens=50))
    alone = replace(piece, prompt_tokens=0)
    assert alone.cut(48, front=True) == replace(alone, body=512, tokens=48)
    assert piece.cut(60, front=True) == replace(piece, prompt=124, prompt_tokens=16, tokens=44, condition=32), (
        "a prompt keeps 16 tokens"
    )
    assert piece.cut(40, front=False).tokens == 8, "a sentence keeps 8 tokens"
    remaining = equally_long([*[piece] * 10, *[alone] * 10, replace(alone, tokens=7)], np.random.default_rng(0))
    assert [each.length for each in remaining] == [56] * 20


def test_drawn_pieces_stay_within_their_utterances(speech: Speech, held: Corpus, draws: RandomPieces) -> None:
    batches = draws.batches(100)
    owner = np.repeat(np.arange(len(speech.tokens)), speech.tokens)
    prompts = 0
    for _ in range(60):
        pieces = next(batches)
        assert {piece.length for piece in pieces} <= set(LENGTHS)
        assert len(pieces) == max(1, 100 // pieces[0].length), "a shape comes back"
        assert len({piece.length for piece in pieces}) == 1
        for piece in pieces:
            body = set(owner[piece.body : piece.body + piece.tokens])
            assert len(body) == 1
            assert body <= set(speech.training)
            assert piece.body + piece.tokens <= piece.end <= len(owner)
            assert piece.speaker < len(held.vectors)
            assert piece.condition <= 2 * piece.length
            if piece.prompt_tokens:
                prompts += 1
                spoken = set(owner[piece.prompt : piece.prompt + piece.prompt_tokens]) | body
                assert len({speech.utterances[number].voice for number in spoken}) == 1
    assert prompts > 20


def test_one_batch_is_learnt_and_gradients_reach_every_tensor(
    config: UnetConfig, held: Corpus, draws: RandomPieces
) -> None:
    training = Training(config, held, Schedule(1, steps=10_000, step=400), rate=5e-3)
    pieces = next(draws.batches(64))
    seen = [training.step(pieces) for _ in range(24)]
    for name, least in (("loss", 0.8), ("mu_l1", 0.7)):
        values = torch.stack([figures[name] for figures in seen])
        assert values[-6:].mean() < least * values[:6].mean()
    assert [
        name for name, tensor in training.parameters.items() if tensor.grad is None or not tensor.grad.isfinite().all()
    ] == []


def test_rows_of_a_batch_do_not_see_each_other(config: UnetConfig, held: Corpus, draws: RandomPieces) -> None:
    training = Training(config, held, Schedule(1))
    noise = torch.randn(32, MEL_BINS, generator=torch.Generator().manual_seed(3))
    pieces = equally_long([draws.served(member, prompted=False) for member in (0, 2, 7)], np.random.default_rng(0))
    network = training.served
    with torch.no_grad():
        solver = Solver(network.estimator, 0.7, CPU)
    for streaming in (False, True):
        together = solve(network, solver, held.gather(pieces), noise, streaming=streaming)
        for row, piece in enumerate(pieces):
            alone = solve(network, solver, held.gather([piece]), noise, streaming=streaming)
            torch.testing.assert_close(together[row], alone[0], atol=1e-4, rtol=0)


def test_the_service_reads_what_was_trained_and_solves_alike(work: Path, held: Corpus, draws: RandomPieces) -> None:
    measures = train(work, 1, CPU, steps=3, batch_tokens=64, measured=1)
    assert {
        "mel_l1",
        "mel_l1_streaming",
        "mel_l1_prompt",
        "mel_l1_prompt_streaming",
        "held_loss",
        "mu_l1",
    } <= measures.keys()
    assert all(np.isfinite(value) for value in measures.values())
    # One step more: the training goes on from its checkpoint.
    train(work, 1, CPU, steps=4, batch_tokens=64, measured=0)
    assert [json.loads(line)["step"] for line in (work / "flow" / "journal.jsonl").read_text().splitlines()] == [3, 4]
    directory = layout.model_directory(work)
    (work / "flow" / "flow.pt").replace(directory.path / "flow.pt")
    flow = load_flow(directory, CPU)
    rows = torch.load(directory.path / "flow.pt", weights_only=True)["input_embedding.weight"]
    assert rows.sum(1).nonzero().flatten().tolist() == list(range(FIRST_ID, FIRST_ID + CODES))

    piece = draws.served(4, prompted=True)
    batch = held.gather([piece])
    trained = torch.load(work / "flow" / "checkpoint.pt", weights_only=True)["average"]
    network = UnetNetwork(flow.config, {name: tensor.half().float() for name, tensor in trained.items()})
    with torch.no_grad():
        solver = Solver(network.estimator, flow.config.guidance, CPU)
    ids = batch.tokens[0] + FIRST_ID
    voice = VoicePrompt(ids[: piece.prompt_tokens], batch.mel[0, : 2 * piece.prompt_tokens], 3 * batch.speaker[0])
    for streaming in (False, True):
        want = solve(network, solver, batch, flow.noise, streaming=streaming)[0, 2 * piece.prompt_tokens :].T
        mel_of_service = flow.prefix(voice, ids[piece.prompt_tokens :], streaming=streaming, final=True)
        torch.testing.assert_close(mel_of_service, want, atol=2e-4, rtol=0)


def test_going_on_from_what_was_kept_is_as_if_never_interrupted(
    config: UnetConfig, held: Corpus, draws: RandomPieces
) -> None:
    batches = draws.batches(64)
    first, second = next(batches), next(batches)
    one, other = (
        Update(config, held, Training(config, held, Schedule(1)).parameters, seed, graphs=True) for seed in (1, 2)
    )
    one(first, streaming=False, rate=1e-3, mu_weight=1.0)
    with torch.no_grad():
        for name, tensor in other.parameters.items():
            tensor.copy_(one.parameters[name])
    other.load_state_dict(deepcopy(one.state_dict()))
    chances = RandomDraws.drawn(len(second), second[0].length, torch.Generator().manual_seed(5))
    for update in (one, other):
        update.rate.fill_(1e-3)
        update.mu_weight.fill_(1.0)
        shape = Shape(len(second), second[0].length, streaming=True)
        update.plain(shape, (places_of(second, CPU), chances.noise, chances.rolls))
    for name, tensor in one.parameters.items():
        torch.testing.assert_close(tensor, other.parameters[name], atol=1e-6, rtol=1e-4)


def test_a_training_begins_with_a_finished_flow(held: Corpus, config: UnetConfig, tmp_path: Path) -> None:
    first = Training(config, held, Schedule(10.0, 5))
    path = parameters.write(tmp_path, first.average.values, config, fsq.first_id(3))
    begun = Training(config, held, Schedule(10.0, 5), start=path)
    for name, tensor in begun.parameters.items():
        assert torch.equal(tensor, first.parameters[name].half().float()), name
        assert torch.equal(begun.average.values[name], tensor), name
