"""A transformer's attention in one launch, a program for each head: what the head needs of the norm, of the product before and of the one
behind it is small enough to be made again by each."""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.attention import attended, fetch_pages, page_of
from services.token2wav.gpu.kernels.chain import announce, wait
from services.token2wav.gpu.kernels.linear import normalised, product


@triton.jit(do_not_specialize=["M"])
def attend_by_head(
    x, w, bias, out_w, parts, pool, own, table, counts, valid, M, page, offset, K: tl.constexpr, KP: tl.constexpr, EPS: tl.constexpr,
    TABLE: tl.constexpr, FRAMES: tl.constexpr, FP: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """parts float32 [HEADS, M, K]: what each head adds to the residual stream x float32 [M, K], but for the bias.

    w [3 HEADS WIDTH, K] and bias: queries, keys and values of norm(x), as in `queries_keys_values`; keys and values go into each unit's own
    page. out_w [K, HEADS WIDTH]. table, counts, valid, pool, page, offset: as in `paged_attention`. No unit may be one whose page another
    unit of the pass attends to: that page is being written. Grid (units * ROWS, HEADS).
    """
    announce(CHAINED)
    inner_width: tl.constexpr = HEADS * WIDTH
    unit, row, head = tl.program_id(0) // ROWS, tl.program_id(0) % ROWS, tl.program_id(1)
    frame, channel, inner = tl.arange(0, FP), tl.arange(0, WIDTH), tl.arange(0, KP)
    rows, real = tl.program_id(0) * FRAMES + frame, frame < FRAMES
    asking = w + (head * WIDTH + channel)[None, :] * K + inner[:, None]
    fits = (inner < K)[:, None]
    for_queries = tl.load(asking, mask=fits, other=0.0)
    for_keys = tl.load(asking + inner_width * K, mask=fits, other=0.0)
    for_values = tl.load(asking + 2 * inner_width * K, mask=fits, other=0.0)
    shifts = bias + head * WIDTH + channel
    query_shift, key_shift, value_shift = tl.load(shifts), tl.load(shifts + inner_width), tl.load(shifts + 2 * inner_width)
    back = tl.load(out_w + inner[None, :] * inner_width + head * WIDTH + channel[:, None], mask=(inner < K)[None, :], other=0.0)
    own_page, pages, last_valid = tl.load(own + unit).to(tl.int64), tl.load(counts + unit), tl.load(valid + unit)
    following = page_of(table + unit * TABLE, 0, pages)
    fetch_pages(
        pool + offset + row * 2 * FRAMES * inner_width + head * WIDTH, table + unit * TABLE, 0, pages - 1, pages, page, FRAMES, FP,
        inner_width, CHAINED,
    )  # fmt: skip
    wait(CHAINED)
    values = tl.load(x + rows[:, None] * K + inner[None, :], mask=real[:, None] & (inner < K)[None, :], other=0.0)
    normal = normalised(values, K, KP, EPS).to(w.dtype.element_ty)
    none = tl.zeros([FP, WIDTH], tl.float32)
    asked = (product(normal, for_queries, none) + query_shift[None, :]).to(w.dtype.element_ty)
    keys = (product(normal, for_keys, none) + key_shift[None, :]).to(w.dtype.element_ty)
    given = (product(normal, for_values, none) + value_shift[None, :]).to(w.dtype.element_ty)
    inside = (row * 2 * FRAMES + frame)[:, None] * inner_width + head * WIDTH + channel[None, :]
    mine = pool + own_page * page + offset + inside
    tl.store(mine, keys, mask=real[:, None])
    tl.store(mine + FRAMES * inner_width, given, mask=real[:, None])
    total = tl.zeros([FP, WIDTH], tl.float32)
    weight = tl.zeros([FP], tl.float32)
    highest = tl.full([FP], -1e30, tl.float32)
    for at in range(pages - 1):
        here = pool + following.to(tl.int64) * page + offset + inside
        following = page_of(table + unit * TABLE, at + 1, pages)
        old_keys = tl.load(here, mask=real[:, None], other=0.0)
        old_values = tl.load(here + FRAMES * inner_width, mask=real[:, None], other=0.0)
        total, weight, highest = attended(asked, old_keys, old_values, real, total, weight, highest)
    total, weight, highest = attended(asked, keys, given, frame < last_valid, total, weight, highest)
    out = (total / weight[:, None]).to(w.dtype.element_ty)
    part = product(out, back, tl.zeros([FP, KP], tl.float32))
    tl.store(parts + (head * M + rows)[:, None] * K + inner[None, :], part, mask=real[:, None] & (inner < K)[None, :])


@triton.jit(do_not_specialize=["M"])
def heads_onto_residual(
    x, parts, bias, M, N: tl.constexpr, NP: tl.constexpr, HEADS: tl.constexpr, BM: tl.constexpr, CHAINED: tl.constexpr
):  # fmt: skip
    """x float32 [M, N] += bias + all of parts float32 [HEADS, M, N], in their order. Grid (ceil(M / BM),)."""
    announce(CHAINED)
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, NP)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    shift = tl.load(bias + columns, mask=columns < N, other=0.0)
    at = rows[:, None] * N + columns[None, :]
    wait(CHAINED)
    total = tl.load(x + at, mask=inside, other=0.0) + shift[None, :]
    for head in tl.static_range(HEADS):
        total += tl.load(parts + head * M * N + at, mask=inside, other=0.0)
    tl.store(x + at, total, mask=inside)
