"""What stands between a request and the fused steps: what they refuse, seats, the state row, what a chunk holds, packed weights."""

import sys
from dataclasses import replace

import pytest
import torch

from cosyserve.errors import SettingsError
from services.llm import torch_backend
from services.llm.gpu.layout import CHUNK, TILE, Stretch, describe
from services.llm.gpu.packing import pack
from services.llm.gpu.seats import Seat, Seats
from services.llm.gpu.state import Column, Flag
from services.llm.gpu.stepper import state_row
from services.llm.gpu.suitability import check
from services.llm.gpu.tuning import BUCKETS, TABLE, Blocks, depth, once, tuning
from services.llm.request import Profile
from services.llm.sampling import GreedyChooser, RepetitionAwareChooser, SeededDraw
from services.llm.torch_backend import TorchBackend
from services.llm.whole_text import WholeText
from tests.unit.llm.tiny_llm import PROMPT, settings
from tests.unit.llm.tiny_model import model

CONFIG = model().config


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 72}, "hidden_size that 16 divides, the model has 72"),
        ({"intermediate_size": 100}, "intermediate_size that 16 divides, the model has 100"),
        ({"head_size": 48}, "head_size that is a power of two, the model has 48"),
        ({"sampling": replace(CONFIG.sampling, top_k=200)}, "at most 128 ids, top_k is 200"),
    ],
)
def test_what_the_kernels_cannot_do_is_refused_by_name(changes: dict[str, int], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        check(replace(CONFIG, **changes), 4)


def test_more_rows_than_the_largest_bucket_are_refused() -> None:
    check(CONFIG, 128)
    with pytest.raises(SettingsError, match="MAX_SEQUENCES is 129, fused steps take at most 128"):
        check(CONFIG, 129)


def test_a_triton_that_is_missing_or_too_old_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "choose_device", lambda wanted: torch.device("cuda"))
    monkeypatch.setattr(torch_backend, "check", lambda config, most: None)
    monkeypatch.setitem(sys.modules, "services.llm.gpu.start", None)
    with pytest.raises(SettingsError, match=r"fused steps need Triton 3\.6 or later .*; set COSYSERVE_LLM_GPU_ENGINE=readable"):
        TorchBackend.load(settings(device="auto"))


def test_every_bucket_has_its_blocks() -> None:
    assert tuple(TABLE) == BUCKETS
    assert tuning(3) is TABLE[4]
    assert tuning(1, invariant=True) is tuning(128, invariant=True)
    assert tuning(1, exact=True) is tuning(128, exact=True)
    walked, spanned, one_row = Blocks(16, 16, 64, split=1), Blocks(16, 16, 128, split=8), Blocks(1, 2, 1024)
    assert [once(blocks, 96) for blocks in (walked, spanned, one_row)] == [False, True, False]
    assert [depth(blocks, 96) for blocks in (walked, spanned, one_row)] == [32, 128, 1024]


def test_seats_are_never_shared_and_all_come_back() -> None:
    seats = Seats(slots=3, pages=10)
    taken = [seats.take(200), seats.take(64), seats.take(65)]
    assert [len(seat.pages) for seat in taken] == [4, 1, 2]
    used = [page for seat in taken for page in seat.pages]
    assert len(set(used)) == 7
    assert {seat.slot for seat in taken} == {1, 2, 3}
    assert 0 not in used
    for seat in taken:
        seats.give_back(seat)
    assert seats.free_pages == 10
    with pytest.raises(IndexError, match="11 pages wanted, 10 are free"):
        seats.take(641)


def test_the_state_row_says_what_the_script_rules() -> None:
    chooser = RepetitionAwareChooser(CONFIG.sampling, SeededDraw((7 << 32) | 0xFFFFFFFE, 3))
    script = WholeText(PROMPT, (1, 2, 3), Profile.CONTINUOUS, chooser, replay=(5, 6))
    row = state_row(script.rules, 0, Seat(1, [1], length=29, last=77), capacity=100)
    told = {column: row[column] for column in Column}
    assert told == {
        Column.LENGTH: 29, Column.INPUT: 77, Column.ACTIVE: 1, Column.DECISIONS: 0, Column.TOKENS: 0, Column.SHORTEST: 6,
        Column.LONGEST: 60, Column.FLAGS: Flag.MASK_RESERVED | Flag.MASK_FILL, Column.FILL_AT: -1, Column.REPLAY: 2,
        Column.SEED_LOW: -2, Column.SEED_HIGH: 7, Column.SENTENCE: 3, Column.CAPACITY: 100,
    }  # fmt: skip
    upstream = WholeText(PROMPT, (1,), Profile.UPSTREAM, chooser)
    assert state_row(upstream.rules, 0, Seat(1, [1]), 100)[Column.FLAGS] == 0
    with pytest.raises(TypeError, match="GreedyChooser"):
        state_row(WholeText(PROMPT, (1,), Profile.UPSTREAM, GreedyChooser()).rules, 0, Seat(1, [1]), 100)


def test_a_chunk_says_whose_each_row_is() -> None:
    told = describe([Stretch(3, 60, list(range(100, 120)), [9, 4]), Stretch(5, 0, [7], [2])])
    inputs, positions, places, slots, begins, counts = told.split([CHUNK] * 3 + [CHUNK // TILE] * 3)
    assert inputs[:20].tolist() == list(range(100, 120))
    assert (positions[4], places[3], places[4], places[19]) == (64, 9 * 64 + 63, 4 * 64, 4 * 64 + 15)
    assert places[20:32].tolist() == [-1] * 12
    assert (inputs[32], places[32], places[33]) == (7, 2 * 64, -1)
    assert (slots[:4].tolist(), begins[:4].tolist(), counts[:4].tolist()) == ([3, 3, 5, 0], [60, 76, 0, 0], [16, 4, 1, 0])


def test_packed_weights_multiply_as_the_model_does() -> None:
    plain = model()
    packed = pack(plain, torch.float32, 64)
    x = torch.randn(5, CONFIG.hidden_size, generator=torch.Generator().manual_seed(0))
    normed = torch.nn.functional.rms_norm(x, (CONFIG.hidden_size,), None, CONFIG.rms_norm_eps)
    gates = torch.nn.functional.linear(normed * plain.layers[1].mlp_norm, plain.layers[1].gate_up)
    torch.testing.assert_close(torch.nn.functional.linear(normed, packed.layers[1].gate_up), gates, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        torch.nn.functional.linear(normed, packed.head, packed.head_bias),
        torch.nn.functional.linear(normed * plain.norm, plain.head, plain.head_bias),
        atol=1e-4,
        rtol=1e-4,
    )
    assert packed.table[packed.starts[2] + 17].equal(plain.tables[2][17])
