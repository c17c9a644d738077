"""Fused steps without a device: suitability, slots, the state row."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from cosyserve.errors import InternalFault, SettingsError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from services.llm.backends import torch_backend
from services.llm.backends.torch_backend import TorchBackend
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.interleaved_text import ContinuousText, UpstreamText
from services.llm.generation.request import Profile
from services.llm.generation.sampling import GreedyChooser, RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import WholeText
from services.llm.gpu.slots import Column, Flag, KvSlot, KvSlotPool, state_row
from services.llm.gpu.tuning import BUCKETS, TABLE, Blocks, check, depth, once, tuning
from tests.unit.llm.tiny_llm import PROMPT, model, sentence, settings, tokens, tokens_alone

CONFIG = model().config


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 72}, "hidden_size that 16 divides, the model has 72"),
        ({"intermediate_size": 100}, "intermediate_size that 16 divides, the model has 100"),
        ({"head_size": 48}, "head_size that is a power of two, the model has 48"),
        ({"sampling": replace(CONFIG.sampling, top_k=200)}, "at most 128 ids, top_k is 200"),
        ({"speech": replace(CONFIG.speech, rows=8193)}, "at most 8192 ids, the head has 8193"),
    ],
)
def test_what_the_kernels_cannot_do_is_refused_by_name(changes: dict[str, int], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        check(replace(CONFIG, **changes), 4)


def test_more_rows_than_the_largest_bucket_are_refused() -> None:
    check(CONFIG, 128)
    with pytest.raises(SettingsError, match="MAX_SEQUENCES is 129, fused steps take at most 128"):
        check(CONFIG, 129)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU as far as the choice of the engine looks; weights stay on the CPU."""
    build = SpeechTokenModel.build
    monkeypatch.setattr(torch_backend, "choose_device", lambda wanted: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(
        SpeechTokenModel, "build", lambda config, tensors, device: build(config, tensors, torch.device("cpu"))
    )


def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "services.llm.gpu.runner", None)


def older_than_ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))


def start_raises(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setitem(sys.modules, "services.llm.gpu.runner", SimpleNamespace(start_engine=Mock(side_effect=error)))


NO_COMPILER = RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")
NO_MEMORY = SettingsError("COSYSERVE_LLM_KV_BUDGET_MIB: 4096 MiB of keys and values do not fit next to the weights")


OBSTACLES = [
    (without_triton, r"fused steps need Triton 3\.6 or later .*; set COSYSERVE_LLM_GPU_ENGINE=readable"),
    (older_than_ampere, "fused steps need a GPU of compute capability 8.0, this one has 7.5; set"),
    (partial(start_raises, NO_COMPILER), r"cannot be compiled here \(Failed to find C compiler.*; set"),
]


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(("obstacle", "reason"), OBSTACLES)
async def test_what_fused_steps_lack_is_reported_and_the_readable_engine_serves_unless_fused_is_asked_for(
    obstacle: Callable[[pytest.MonkeyPatch], None],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    obstacle(monkeypatch)
    with pytest.raises(SettingsError, match=reason):
        TorchBackend.load(settings(device="auto", gpu_engine="fused"))
    assert not caplog.records
    served = TorchBackend.load(settings(device="auto"))
    assert served.identity.precision == "float32, batches of up to 16 rows"
    assert (await tokens(served, sentence(2))) == tokens_alone(model(), sentence(2))
    await served.close()
    (record,) = caplog.records
    assert re.search(f"^the readable engine is used, which is much slower: .*{reason}", record.getMessage())


@pytest.mark.usefixtures("on_a_gpu")
def test_what_is_no_obstacle_is_no_reason_to_serve_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    start_raises(NO_MEMORY, monkeypatch)
    with pytest.raises(SettingsError, match="KV_BUDGET"):
        TorchBackend.load(settings(device="auto"))


def test_every_bucket_has_its_blocks() -> None:
    assert tuple(TABLE) == BUCKETS
    assert tuning(3) is TABLE[4]
    assert tuning(1, invariant=True) is tuning(128, invariant=True)
    assert tuning(1, exact=True) is tuning(128, exact=True)
    walked, spanned, one_row = Blocks(16, 16, 64, split=1), Blocks(16, 16, 128, split=8), Blocks(1, 2, 1024)
    assert [once(blocks, 96) for blocks in (walked, spanned, one_row)] == [False, True, False]
    assert [depth(blocks, 96) for blocks in (walked, spanned, one_row)] == [32, 128, 1024]


def test_slots_are_never_shared_and_all_come_back() -> None:
    pool = KvSlotPool(slots=3, pages=10)
    taken = [pool.take(4), pool.take(1), pool.take(1)]
    assert pool.extend(taken[2], 1) == taken[2].pages[1:]
    used = {page for slot in taken for page in slot.pages}
    assert (len(used), 0 in used) == (7, False)
    assert sorted((slot.index, slot.room) for slot in taken) == [(1, 256), (2, 64), (3, 128)]
    for slot in taken:
        pool.release(slot)
    with pytest.raises(IndexError, match="11 pages wanted, 10 are free"):
        pool.take(11)


def test_the_state_row_says_what_the_script_rules() -> None:
    chooser = RepetitionAwareChooser(CONFIG.sampling, SeededDraw((7 << 32) | 0xFFFFFFFE, 3))
    script = WholeText(CONFIG, PROMPT, (1, 2, 3), Profile.CONTINUOUS, chooser, replay=(5, 6))
    row = state_row(script.rules, 0, KvSlot(1, [1], length=29, last=77), capacity=100)
    columns = {column: row[column] for column in Column}
    assert columns == {
        Column.LENGTH: 29, Column.INPUT: 77, Column.ACTIVE: 1, Column.DECISIONS: 0, Column.TOKENS: 0,
        Column.SHORTEST: 6,
        Column.LONGEST: 60, Column.FLAGS: Flag.MASK_OTHERS | Flag.MASK_FILL, Column.FILL_AT: -1, Column.REPLAY: 2,
        Column.SEED_LOW: -2, Column.SEED_HIGH: 7, Column.SENTENCE: 3, Column.CAPACITY: 100,
    }  # fmt: skip
    upstream = WholeText(CONFIG, PROMPT, (1,), Profile.UPSTREAM, chooser)
    third = replace(CONFIG, speech=COSYVOICE3.speech)
    for kind, flags in (
        (WholeText(third, PROMPT, (1,), Profile.CONTINUOUS, chooser), Flag.MASK_OTHERS | Flag.MASK_FILL),
        (WholeText(third, PROMPT, (1,), Profile.UPSTREAM, chooser), Flag.SHORT_MASKS_REFERENCE),
        (ContinuousText(third, PROMPT, chooser), Flag.MASK_OTHERS | Flag.MASK_END | Flag.FILL_FIRST),
        (UpstreamText(third, PROMPT, chooser), Flag.MASK_REFERENCE | Flag.FILL_FIRST),
    ):
        assert state_row(kind.rules, 0, KvSlot(1, [1]), 100)[Column.FLAGS] == flags
    with pytest.raises(InternalFault, match="cannot mask exactly"):
        state_row(replace(upstream.rules, speech=third.speech, masked=(6563,)), 0, KvSlot(1, [1]), 100)
    assert state_row(upstream.rules, 0, KvSlot(1, [1]), 100)[Column.FLAGS] == 0
    with pytest.raises(TypeError, match="GreedyChooser"):
        state_row(WholeText(CONFIG, PROMPT, (1,), Profile.UPSTREAM, GreedyChooser()).rules, 0, KvSlot(1, [1]), 100)
