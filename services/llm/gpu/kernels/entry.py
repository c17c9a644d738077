"""The first kernel of a decode step: the position of each row, and the embedding of its input."""

# fmt: off
import triton
import triton.language as tl

from services.llm.gpu.kernels.dependent_launch import launch_dependents
from services.llm.gpu.state_table import COLUMNS, Column

LENGTH = tl.constexpr(int(Column.LENGTH))
INPUT = tl.constexpr(int(Column.INPUT))
ACTIVE = tl.constexpr(int(Column.ACTIVE))
WIDTH = tl.constexpr(COLUMNS)


@triton.jit(do_not_specialize=["batch"])
def enter(
    state, pages, row_slot, table, row_position, row_place, row_length, row_pages, residual, rounded, squares,
    most_pages, batch,
    HIDDEN: tl.constexpr, PADDED: tl.constexpr, PAGES_PADDED: tl.constexpr, TILES: tl.constexpr,
    TILES_PADDED: tl.constexpr,
    PAGE: tl.constexpr, PDL: tl.constexpr,
):
    """For each row: position, place in the cache (page * PAGE + offset; the dummy page 0 when
    inactive), length with this position (0 when inactive), all int32 [B], and its pages, int32 [B,
    most_pages]; its embedding from `table` [rows, HIDDEN] as residual float32 and rounded [B,
    HIDDEN], with the sum of squares in the first of `squares` [TILES, B] and 0 in the others.
    """
    launch_dependents(PDL, 1)
    row = tl.program_id(0)
    number = tl.load(row_slot + row)
    slot = state + number * WIDTH
    active = tl.load(slot + ACTIVE)
    position = tl.load(slot + LENGTH) * active
    page = tl.load(pages + number * most_pages + position // PAGE) * active
    tl.store(row_position + row, position)
    tl.store(row_place + row, page * PAGE + position % PAGE)
    tl.store(row_length + row, (position + 1) * active)
    places = tl.arange(0, PAGES_PADDED)
    listed = tl.load(pages + number * most_pages + places, mask=places < most_pages, other=0)
    tl.store(row_pages + row * most_pages + places, listed, mask=places < most_pages)
    columns = tl.arange(0, PADDED)
    within = columns < HIDDEN
    embedding = tl.load(table + tl.load(slot + INPUT).to(tl.int64) * HIDDEN + columns, mask=within, other=0.0)
    tl.store(residual + row * HIDDEN + columns, embedding.to(tl.float32), mask=within)
    tl.store(rounded + row * HIDDEN + columns, embedding, mask=within)
    tiles = tl.arange(0, TILES_PADDED)
    wide = embedding.to(tl.float32)
    tl.store(squares + tiles * batch + row, tl.where(tiles == 0, tl.sum(wide * wide, axis=0), 0.0), mask=tiles < TILES)
