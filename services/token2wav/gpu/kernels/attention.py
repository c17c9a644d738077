"""Attention of a block's frames to all frames up to the end of the block, through a page table."""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.kept_numbers import as_operands, kept_scales
from services.token2wav.gpu.kernels.linear import product


@triton.jit
def attended(asked, keys, values, key_scales, value_scales, known, total, weight, highest, RATIO: tl.constexpr):
    """total [F, WIDTH], weight and highest [F] of the querying frames, updated with P more keys and
    values [P, WIDTH], of which `known` count. Weights are powers of two.

    With RATIO above 1 keys and values are numbers of `kept_numbers`, each of which is an operand
    without rounding; the scales [P] are multiplied with scores and with weights.
    """
    # Both before the first product, so that what they wait for overlaps.
    keys, values = as_operands(keys, asked.dtype), as_operands(values, asked.dtype)
    scores = product(asked, tl.trans(keys), tl.zeros([asked.shape[0], keys.shape[0]], tl.float32)) * 1.4426950408889634
    if RATIO > 1:
        scores = scores * key_scales[None, :]
    scores = tl.where(known[None, :], scores, -float("inf"))
    higher = tl.maximum(highest, tl.max(scores, axis=1))
    shares = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(highest - higher)
    weight = weight * fade + tl.sum(shares, axis=1)
    if RATIO > 1:
        shares = shares * value_scales[None, :]
    return product(shares.to(asked.dtype), values, total * fade[:, None]), weight, higher


@triton.jit
def page_of(row, at, pages):
    """int32: the page of block `at`, or of each of several blocks; for later blocks the last page.

    Loaded one iteration ahead, so that no iteration waits for its page number. Widened to int64
    only where it is used, because the compiler pipelines the value that is loaded.
    """
    return tl.load(row + tl.minimum(at, pages - 1))


@triton.jit(do_not_specialize=["M"])
def paged_attention(
    queries, pool, kept, table, counts, valid, skipped, out, norms, M, page, offset, TABLE: tl.constexpr,
    FRAMES: tl.constexpr, FP: tl.constexpr, RATIO: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr,
    WIDTH: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr, SKIP: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """queries [M, HEADS WIDTH], scaled by 1 / sqrt(WIDTH) -> out, for each of SPLITS parts of the
    keys.

    pool, kept, offset, RATIO: as in `kept_numbers`, pages of `page` operands. table int32 [units,
    TABLE]: the pages that the unit sees, its own and those of its stream; counts [units]: how many;
    valid [units]: real frames of the last; skipped [units]: tokens that the first one begins
    without, of SKIP frames each; with SKIP 0 it is not read. A split takes at least LEAST pages.
    With one split `out` [M, HEADS WIDTH] is the result; else out [SPLITS, M, HEADS WIDTH] holds
    each part normalised and norms float32 [SPLITS, M, HEADS] the base 2 logarithm of its weight,
    minus infinity for a part without keys, whose `out` is not written. Grid (units * ROWS, HEADS,
    SPLITS). FP: FRAMES rounded up to a power of two. Reads 2 FRAMES WIDTH elements per page and
    program, nothing twice but for the SPLITS' queries.
    """
    announce(CHAINED)
    unit, row = tl.program_id(0) // ROWS, tl.program_id(0) % ROWS
    head, split = tl.program_id(1), tl.program_id(2)
    frame, channel = tl.arange(0, FP), tl.arange(0, WIDTH)
    rows = tl.program_id(0) * FRAMES + frame
    real = frame < FRAMES
    # No kernel writes the page table, so it may be read before the wait.
    pages, last_valid = tl.load(counts + unit), tl.load(valid + unit)
    if SKIP > 0:
        padding = tl.load(skipped + unit) * SKIP
    share = tl.maximum((pages + SPLITS - 1) // SPLITS, LEAST)
    begin = split * share
    end = tl.minimum(begin + share, pages)
    following = page_of(table + unit * TABLE, begin, pages)
    wait(CHAINED)
    asked = tl.load(
        queries + rows[:, None] * (HEADS * WIDTH) + head * WIDTH + channel[None, :], mask=real[:, None], other=0.0
    )
    total = tl.zeros([FP, WIDTH], tl.float32)
    weight = tl.zeros([FP], tl.float32)
    highest = tl.full([FP], -1e30, tl.float32)
    inside = (row * 2 * FRAMES) * (HEADS * WIDTH) + head * WIDTH + frame[:, None] * (HEADS * WIDTH) + channel[None, :]
    for at in range(begin, end):
        layer = following.to(tl.int64) * page + offset
        here = kept + layer * RATIO + inside
        following = page_of(table + unit * TABLE, at + 1, pages)
        known = frame < tl.where(at == pages - 1, last_valid, FRAMES)
        if SKIP > 0:
            known = known & (frame >= tl.where(at == 0, padding, 0))
        keys = tl.load(here, mask=real[:, None], other=0.0)
        values = tl.load(here + FRAMES * HEADS * WIDTH, mask=real[:, None], other=0.0)
        key_scales, value_scales = kept_scales(
            pool, layer, row, head, frame, real, HEADS * WIDTH, WIDTH, FRAMES, ROWS, RATIO
        )
        total, weight, highest = attended(
            asked, keys, values, key_scales, value_scales, known, total, weight, highest, RATIO
        )
    to = rows[:, None] * (HEADS * WIDTH) + head * WIDTH + channel[None, :]
    if SPLITS == 1:
        tl.store(out + to, (total / weight[:, None]).to(out.dtype.element_ty), mask=real[:, None])
    else:
        has = end > begin
        norm = tl.where(has, highest + tl.log2(tl.maximum(weight, 1e-30)), -float("inf"))
        tl.store(norms + (split * M + rows) * HEADS + head, norm, mask=real)
        if has:
            normalised_part = (total / weight[:, None]).to(out.dtype.element_ty)
            tl.store(out + split.to(tl.int64) * M * (HEADS * WIDTH) + to, normalised_part, mask=real[:, None])


@triton.jit(do_not_specialize=["M"])
def joined_parts(
    parts, norms, out, M, HEADS: tl.constexpr, WIDTH: tl.constexpr, INNER: tl.constexpr, SPLITS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, HEADS WIDTH]: the SPLITS parts of `paged_attention`, weighted and summed; parts
    without keys are not read. INNER: HEADS WIDTH rounded up to a power of two. Grid (M,).

    A separate kernel, because fused into a product the compiler would make each of its warps
    compute all weights.
    """
    announce(CHAINED)
    row, inner = tl.program_id(0), tl.arange(0, INNER)
    fits = inner < HEADS * WIDTH
    wait(CHAINED)
    place = norms + row * HEADS + inner // WIDTH
    highest = tl.load(place, mask=fits, other=0.0)
    for split in tl.static_range(1, SPLITS):
        highest = tl.maximum(highest, tl.load(place + split * M * HEADS, mask=fits, other=0.0))
    whole = tl.zeros([INNER], tl.float32)
    joined = tl.zeros([INNER], tl.float32)
    for split in tl.static_range(SPLITS):
        norm = tl.load(place + split * M * HEADS, mask=fits, other=0.0)
        share = tl.exp2(norm - highest)
        here = parts + (split * M.to(tl.int64) + row) * (HEADS * WIDTH) + inner
        joined += tl.load(here, mask=fits & (norm > -1e30), other=0.0).to(tl.float32) * share
        whole += share
    tl.store(out + row * (HEADS * WIDTH) + inner, (joined / whole).to(out.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=["M"])
def attend_by_head(
    queries, pool, kept, table, counts, valid, out_w, parts, M, page, offset, K: tl.constexpr, TABLE: tl.constexpr,
    FRAMES: tl.constexpr, RATIO: tl.constexpr,
    FP: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, BM: tl.constexpr,
    KEYS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """Attention of small batches fused with the product that follows it, which saves a launch.

    parts [HEADS, M, K]: what each head adds to the residual stream, without the bias, in the
    operand type, because every program of the feed-forward, which sums them, reads all rows.

    queries, pool, kept, table, counts, valid, page, offset: as in `paged_attention`; out_w [K,
    HEADS WIDTH], K a power of two. A program computes BM of the FP frames of its unit and row, and
    loads as many pages at a time as fit into KEYS. Grid (units * ROWS * FP / BM, HEADS).
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
    inside = ((row * 2 * FRAMES + frame) * inner_width + head * WIDTH)[:, None] + channel[None, :]
    total = tl.zeros([BM, WIDTH], tl.float32)
    weight = tl.zeros([BM], tl.float32)
    highest = tl.full([BM], -1e30, tl.float32)
    wait(CHAINED)
    asked = tl.load(queries + rows[:, None] * inner_width + head * WIDTH + channel[None, :], mask=asks, other=0.0)
    for at in range(0, pages, together):
        layers = following.to(tl.int64) * page + offset
        here = kept + (layers * RATIO)[:, None] + inside
        following = page_of(table + unit * TABLE, at + together + block, pages)
        there = (block < together) & (at + block < pages)
        known = there & (frame < tl.where(at + block == pages - 1, last_valid, FRAMES))
        keys = tl.load(here, mask=known[:, None], other=0.0)
        values = tl.load(here + FRAMES * inner_width, mask=known[:, None], other=0.0)
        key_scales, value_scales = kept_scales(
            pool, layers, row, head, frame, known, inner_width, WIDTH, FRAMES, ROWS, RATIO
        )
        total, weight, highest = attended(
            asked, keys, values, key_scales, value_scales, known, total, weight, highest, RATIO
        )
    result = (total / weight[:, None]).to(queries.dtype.element_ty)
    added = product(result, back, tl.zeros([BM, K], tl.float32))
    tl.store(parts + (head * M + rows)[:, None] * K + column[None, :], added.to(parts.dtype.element_ty), mask=asks)
