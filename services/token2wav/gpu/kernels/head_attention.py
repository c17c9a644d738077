"""Attention of small batches fused with the product that follows it, which saves a launch; the
feed-forward sums the results of the heads.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.attention import attended, page_of
from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import product


@triton.jit(do_not_specialize=["M"])
def attend_by_head(
    queries, pool, table, counts, valid, out_w, parts, M, page, offset, K: tl.constexpr, TABLE: tl.constexpr,
    FRAMES: tl.constexpr,
    FP: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, BM: tl.constexpr,
    KEYS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """parts [HEADS, M, K]: what each head adds to the residual stream, without the bias, in the
    operand type, because every program of the feed-forward reads all rows.

    queries, pool, table, counts, valid, page, offset: as in `paged_attention`; out_w [K, HEADS
    WIDTH], K a power of two. A program computes BM of the FP frames of its unit and row, and loads
    as many pages at a time as fit into KEYS. Grid (units * ROWS * FP / BM, HEADS).
    """
    announce(CHAINED)
    inner_width: tl.constexpr = HEADS * WIDTH
    sharing: tl.constexpr = FP // BM
    both, head = tl.program_id(0) // sharing, tl.program_id(1)
    unit, row = both // ROWS, both % ROWS
    channel, column = tl.arange(0, WIDTH), tl.arange(0, K)
    asking = tl.program_id(0) % sharing * BM + tl.arange(0, BM)
    rows, asks = both * FRAMES + asking, (asking < FRAMES)[:, None]
    back = tl.load(out_w + column[None, :] * inner_width + head * WIDTH + channel[:, None])
    pages, last_valid = tl.load(counts + unit), tl.load(valid + unit)
    together: tl.constexpr = KEYS // FRAMES
    key = tl.arange(0, KEYS)
    block, frame = key // FRAMES, key % FRAMES
    following = page_of(table + unit * TABLE, block, pages)
    first = pool + offset + ((row * 2 * FRAMES + frame) * inner_width + head * WIDTH)[:, None] + channel[None, :]
    total = tl.zeros([BM, WIDTH], tl.float32)
    weight = tl.zeros([BM], tl.float32)
    highest = tl.full([BM], -1e30, tl.float32)
    wait(CHAINED)
    asked = tl.load(queries + rows[:, None] * inner_width + head * WIDTH + channel[None, :], mask=asks, other=0.0)
    for at in range(0, pages, together):
        here = first + (following.to(tl.int64) * page)[:, None]
        following = page_of(table + unit * TABLE, at + together + block, pages)
        there = (block < together) & (at + block < pages)
        known = there & (frame < tl.where(at + block == pages - 1, last_valid, FRAMES))
        keys = tl.load(here, mask=known[:, None], other=0.0)
        values = tl.load(here + FRAMES * inner_width, mask=known[:, None], other=0.0)
        total, weight, highest = attended(asked, keys, values, known, total, weight, highest)
    result = (total / weight[:, None]).to(queries.dtype.element_ty)
    added = product(result, back, tl.zeros([BM, K], tl.float32))
    tl.store(parts + (head * M + rows)[:, None] * K + column[None, :], added.to(parts.dtype.element_ty), mask=asks)
