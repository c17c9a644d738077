"""The kernels of the speech-token model against the readable model and sampler, in Triton's
interpreter or on a GPU, in float32.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device or Triton's interpreter", allow_module_level=True)

from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw, mask
from services.llm.generation.script import Table, speech_inputs
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.layout import PAGE, Stretch
from services.llm.gpu.packing import PackedModel, pack
from services.llm.gpu.prefill import PrefillStep
from services.llm.gpu.slots import NON_FINITE, NOTHING, Column, Flag
from services.llm.gpu.tuning import EXACT, ONE, Blocks, Tuning
from tests.stacks.up_process import TINY, TINY3
from tests.unit.llm.tiny_llm import model

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
POSITIONS = 256
SUMMED = Tuning(*(Blocks(1, 8, 64) for _ in range(4)), score=Blocks(1, 512, 64), splits=2)
PADDED = replace(
    EXACT,
    score=Blocks(16, 512, 64),
    **dict.fromkeys(("heads", "out", "gated"), Blocks(16, 16, 32)),
    down=Blocks(16, 16, 32, split=2),
)
AT_ONCE = Tuning(*(Blocks(16, 16, 64, split=split) for split in (1, 1, 1, 2)), score=Blocks(16, 512, 64), splits=2)


def paired(config_head_size: int) -> Tensor:
    """Where the numbers of a key's head stand in the packed model."""
    half = config_head_size // 2
    return torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).flatten()


def begin(memory: Memory, slot: int, cache: SequenceCache, row: int, **columns: int) -> None:
    """The sequence of `cache` sits in `slot`, on pages of its own in no order, and runs `row` of
    the joined table next.
    """
    most = memory.pages.shape[1]
    order = torch.randperm(most, generator=torch.Generator().manual_seed(slot)) + 1 + (slot - 1) * most
    memory.pages[slot] = order.to(torch.int32)
    turned = paired(cache.keys.shape[-1]).to(cache.keys.device)
    for position in range(cache.length):
        page, inside = int(order[position // PAGE]), position % PAGE
        memory.cache[:, page, :, 0, inside] = cache.keys[:, :, position][..., turned].to(memory.cache.dtype)
        memory.cache[:, page, :, 1, inside] = cache.values[:, :, position].to(memory.cache.dtype)
    values_by_column = {
        "LENGTH": cache.length,
        "INPUT": row,
        "ACTIVE": 1,
        "LONGEST": 1000,
        "CAPACITY": 1000,
        "FILL_AT": -1,
    } | columns
    for name, value in values_by_column.items():
        memory.state[slot, Column[name]] = value


def cached(model: SpeechTokenModel, tokens: list[int]) -> tuple[SequenceCache, Tensor]:
    """A slot that has run these speech tokens, and the log-probabilities behind the last,
    [6564].
    """
    cache = SequenceCache.reserve(model.config, 512, model.device)
    return cache, model.log_probabilities(model.forward(model.embed(speech_inputs(tokens)), cache)[-1:])[0]


@pytest.fixture
def plain() -> SpeechTokenModel:
    return model(DEVICE)


def reserved(packed: PackedModel) -> Memory:
    """Pages full of what is no number: nothing may be read that was not written."""
    memory = Memory.reserve(packed, pages=32, slots=4, positions=POSITIONS)
    memory.cache.fill_(float("nan"))
    return memory


@pytest.mark.parametrize(
    "blocks", [ONE, SUMMED, PADDED, AT_ONCE], ids=["one row", "rows summed", "rows padded", "at once"]
)
@torch.inference_mode()
def test_rows_of_a_step_are_the_readable_model(plain: SpeechTokenModel, blocks: Tuning) -> None:
    packed = pack(plain, torch.float32, POSITIONS)
    memory, batch = reserved(packed), 1 if blocks is ONE else 3
    step = DecodeStep(packed, memory, batch, replace(blocks, score=replace(blocks.score, columns=512)))
    wanted = []
    for row, length in enumerate((150, 64, 3)[:batch]):
        tokens = [(31 * row + 7 * at) % 6561 for at in range(length + 1)]
        before, _ = cached(plain, tokens[:-1])
        wanted.append(cached(plain, tokens)[1])
        begin(memory, row + 1, before, packed.starts[Table.SPEECH] + tokens[-1])
        step.rows[row] = row + 1
    memory.state[2, Column.ACTIVE] = batch == 1
    step.enter()
    for index in range(packed.config.layers):
        step.layer(index)
    step.score()
    computed = torch.log_softmax(step.logits, dim=-1)
    for row in range(batch):
        if row != 1:
            torch.testing.assert_close(computed[row], wanted[row], atol=1e-4, rtol=0)


@torch.inference_mode()
def test_a_chunk_of_two_prompts_is_the_readable_model(plain: SpeechTokenModel) -> None:
    packed = pack(plain, torch.float32, POSITIONS)
    memory = reserved(packed)
    prefill = PrefillStep(packed, memory)
    prompts = [[(3 * at) % 300 for at in range(130)], [(5 * at) % 300 for at in range(37)]]
    pages = [[7, 3, 9, 1], [2, 8, 4, 5]]
    for slot, own in enumerate(pages, start=1):
        memory.pages[slot] = torch.tensor(own, dtype=torch.int32)
    rows = [[packed.starts[Table.TEXT] + text_id for text_id in prompt] for prompt in prompts]
    for stretches in (
        [Stretch(1, 0, rows[0][:100], pages[0]), Stretch(2, 0, rows[1], pages[1])],
        [Stretch(1, 100, rows[0][100:], pages[0])],
    ):
        prefill.load(stretches)
        prefill.launch()
    for prompt, own in zip(prompts, pages, strict=True):
        cache = SequenceCache.reserve(plain.config, 256, DEVICE)
        plain.forward(
            torch.nn.functional.embedding(torch.tensor(prompt, device=DEVICE), plain.tables[Table.TEXT]), cache
        )
        for part, filled in ((0, cache.keys[..., paired(plain.config.head_size).to(DEVICE)]), (1, cache.values)):
            computed = torch.stack(
                [memory.cache[:, own[at // 64], :, part, at % 64] for at in range(len(prompt))], dim=2
            )
            torch.testing.assert_close(computed, filled[:, :, : len(prompt)], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("bundle", "flags", "barred"),
    [
        (TINY, Flag.MASK_OTHERS | Flag.MASK_FILL, (6562, 6563)),
        (TINY3, Flag.MASK_OTHERS | Flag.MASK_END, (6561, 6562, 6563, *range(6565, 6761))),
        (TINY3, Flag.SHORT_MASKS_REFERENCE, (6561,)),
    ],
    ids=["tiny", "tiny3", "tiny3 upstream"],
)
@torch.inference_mode()
def test_the_device_draws_as_the_readable_sampler(bundle: Path, flags: Flag, barred: tuple[int, ...]) -> None:
    """A plain draw, a repeated id drawn again, a fill that is due, a replayed token, scores that
    are no numbers; masked ids that would be likely.
    """
    plain = model(DEVICE, bundle)
    speech = plain.config.speech
    packed = pack(plain, torch.float32, POSITIONS)
    memory = Memory.reserve(packed, pages=32, slots=4, positions=POSITIONS)
    step = DecodeStep(packed, memory, 3)
    step.rows.copy_(torch.tensor([1, 2, 3], dtype=torch.int32))
    scores = np.random.default_rng(0).normal(0.0, 2.0, (3, speech.rows)).astype(np.float32)
    scores[:, list(barred)] += 20.0
    scores[0, 100:900] = scores[0, 100]
    scores[1, 4711] = 14.0
    limits = plain.config.sampling
    history: list[list[int]] = [[5, 6], [1, 4711], []]
    empty = SequenceCache.reserve(plain.config, 16, DEVICE)
    for slot, decided in enumerate(history, start=1):
        begin(
            memory,
            slot,
            empty,
            0,
            FLAGS=int(flags),
            SHORTEST=1000 * bool(flags & Flag.SHORT_MASKS_REFERENCE),
            DECISIONS=len(decided),
            TOKENS=len(decided),
            SEED_LOW=-slot,
            SEED_HIGH=slot,
            SENTENCE=2,
        )
        memory.history[slot, : len(decided)] = torch.tensor(decided, dtype=torch.int32)
    step.logits.copy_(torch.from_numpy(scores))
    memory.state[3, Column.FILL_AT] = 0
    step.decide()
    choosers = [RepetitionAwareChooser(limits, SeededDraw(slot << 32 | (1 << 32) - slot, 2)) for slot in (1, 2)]
    wanted = [chooser.choose(mask(scores[row], barred), history[row]) for row, chooser in enumerate(choosers)]
    assert wanted[1] != 4711
    assert step.decisions.tolist() == [*wanted, speech.fill]
    assert memory.state[1:4, Column.ACTIVE].tolist() == [1, 1, 0]
    assert memory.state[1:4, Column.TOKENS].tolist() == [3, 3, 0]
    assert memory.state[1, Column.INPUT] == packed.starts[Table.SPEECH] + speech_inputs([wanted[0]])[0].row
    memory.state[1, Column.REPLAY], memory.replay[1, 3] = 4, 77
    step.logits[1, 3] = float("nan")
    step.decide()
    assert step.decisions.tolist() == [77, NON_FINITE, NOTHING]
