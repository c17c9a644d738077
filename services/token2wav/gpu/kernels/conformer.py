"""Attention by content and distance for the encoder (compatibility specification section 4.3),
through the page table.

The score by distance, (q + v) . W pe[i - j], is split by the angle addition theorem. pe contains
sines and cosines of (i - j) w. If n is the distance from key j to the start of the query's block
and i the query's index in it, the distance is i + n. So a query that is rotated by i times w is
multiplied with one table of sines and cosines of n w, which is the same for all heads and layers.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import normalised, product


@triton.jit(do_not_specialize=["M"])
def rotated_queries(
    queries, bias, w, turns, out, M, HEADS: tl.constexpr, WIDTH: tl.constexpr, WP: tl.constexpr, PAIRS: tl.constexpr,
    FRAMES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, HEADS, 2, PAIRS]: a = W_h^T (q + v_h), sine part times cosine of i w less cosine part
    times sine, and the other way round.

    queries [M, HEADS WIDTH]; bias float32 [HEADS, WIDTH]; w [2, PAIRS, HEADS WIDTH]: rows of sines,
    then of cosines; turns float32 [2, FRAMES, PAIRS]: sine and cosine of i w. Grid (ceil(PAIRS /
    BN), ceil(M / BM), HEADS).
    """
    announce(CHAINED)
    pairs = tl.program_id(0) * BN + tl.arange(0, BN)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    head, channel = tl.program_id(2), tl.arange(0, WP)
    fits, inside = pairs < PAIRS, (rows < M)[:, None] & (pairs < PAIRS)[None, :]
    at = w + pairs[None, :] * (HEADS * WIDTH) + head * WIDTH + channel[:, None]
    of_sines = tl.load(at, mask=fits[None, :] & (channel < WIDTH)[:, None], other=0.0)
    of_cosines = tl.load(at + PAIRS * HEADS * WIDTH, mask=fits[None, :] & (channel < WIDTH)[:, None], other=0.0)
    shift = tl.load(bias + head * WIDTH + channel, mask=channel < WIDTH, other=0.0)
    sine = tl.load(turns + (rows % FRAMES)[:, None] * PAIRS + pairs[None, :], mask=inside, other=0.0)
    cosine = tl.load(turns + (FRAMES + rows % FRAMES)[:, None] * PAIRS + pairs[None, :], mask=inside, other=0.0)
    wait(CHAINED)
    here = queries + rows[:, None] * (HEADS * WIDTH) + head * WIDTH + channel[None, :]
    asked = tl.load(here, mask=(rows < M)[:, None] & (channel < WIDTH)[None, :], other=0.0)
    asked = (asked.to(tl.float32) + shift[None, :]).to(w.dtype.element_ty)
    s = product(asked, of_sines, tl.zeros([BM, BN], tl.float32))
    c = product(asked, of_cosines, tl.zeros([BM, BN], tl.float32))
    to = out + (rows[:, None] * HEADS + head) * (2 * PAIRS) + pairs[None, :]
    tl.store(to, (s * cosine - c * sine).to(out.dtype.element_ty), mask=inside)
    tl.store(to + PAIRS, (s * sine + c * cosine).to(out.dtype.element_ty), mask=inside)


@triton.jit
def relative_attention(
    queries, bias, rotated, distances, pool, table, counts, valid, skipped, place, out, page, offset,
    TABLE: tl.constexpr, FRAMES: tl.constexpr, FP: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    WP: tl.constexpr, PAIRS: tl.constexpr, BEHIND: tl.constexpr, SKIP: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """queries [M, HEADS WIDTH], scaled -> out of the same shape; bias float32 [HEADS, WIDTH] is
    added to them.

    rotated as above; distances [BEHIND + FRAMES - 1 + farthest + 1, 2 PAIRS]: sines and cosines of
    n w for n from 1 - FRAMES - BEHIND on. Pages, skipped and SKIP as in `paged_attention`, one row;
    place int32 [units]: which of its pages is the unit's own, with SKIP 0 the last. Grid (units,
    HEADS).
    """
    announce(CHAINED)
    unit, head = tl.program_id(0), tl.program_id(1)
    frame, channel = tl.arange(0, FP), tl.arange(0, WP)
    rows = unit * FRAMES + frame
    real, fits = frame < FRAMES, (frame < FRAMES)[:, None] & (channel < WIDTH)[None, :]
    shift = tl.load(bias + head * WIDTH + channel, mask=channel < WIDTH, other=0.0)
    pages, last_valid = tl.load(counts + unit), tl.load(valid + unit)
    own = pages - 1
    if SKIP > 0:
        own, padding = tl.load(place + unit), tl.load(skipped + unit) * SKIP
    wait(CHAINED)
    asked = tl.load(queries + rows[:, None] * (HEADS * WIDTH) + head * WIDTH + channel[None, :], mask=fits, other=0.0)
    asked = (asked.to(tl.float32) + shift[None, :]).to(pool.dtype.element_ty)
    total = tl.zeros([FP, WP], tl.float32)
    weight = tl.zeros([FP], tl.float32)
    highest = tl.full([FP], -1e30, tl.float32)
    inside = frame[:, None] * (HEADS * WIDTH) + head * WIDTH + channel[None, :]
    for at in range(pages):
        here = pool + tl.load(table + unit * TABLE + at).to(tl.int64) * page + offset + inside
        keys = tl.load(here, mask=fits, other=0.0)
        values = tl.load(here + FRAMES * HEADS * WIDTH, mask=fits, other=0.0)
        scores = product(asked, tl.trans(keys), tl.zeros([FP, FP], tl.float32))
        # Key j of this page lies (own - at) * FRAMES - j before the block; row 0 of the table is
        # 1 - FRAMES - BEHIND.
        away = (own - at) * FRAMES + FRAMES - 1 + BEHIND - frame
        for first in range(0, 2 * PAIRS, BK):
            inner = first + tl.arange(0, BK)
            there = real[:, None]
            if (2 * PAIRS) % BK != 0:
                there = there & (inner < 2 * PAIRS)[None, :]
            mine = rotated + (rows[:, None] * HEADS + head) * (2 * PAIRS) + inner[None, :]
            ours = tl.load(mine, mask=there, other=0.0)
            theirs = tl.load(distances + away[:, None] * (2 * PAIRS) + inner[None, :], mask=there, other=0.0)
            scores = product(ours, tl.trans(theirs), scores)
        scores = scores * 1.4426950408889634
        known = frame < tl.where(at == pages - 1, last_valid, FRAMES)
        if SKIP > 0:
            known = known & (frame >= tl.where(at == 0, padding, 0))
        scores = tl.where(known[None, :], scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        shares = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(highest - higher)
        weight = weight * fade + tl.sum(shares, axis=1)
        total = product(shares.to(keys.dtype), values, total * fade[:, None])
        highest = higher
    to = out + rows[:, None] * (HEADS * WIDTH) + head * WIDTH + channel[None, :]
    tl.store(to, (total / weight[:, None]).to(out.dtype.element_ty), mask=fits)


@triton.jit(do_not_specialize=["M"])
def norm_scaled(
    x, scale, shift, factor, out, M, N: tl.constexpr, NP: tl.constexpr, BM: tl.constexpr, CHAINED: tl.constexpr
):
    """out float32 [M, N] = (norm(x) scale + shift) factor. Grid (ceil(M / BM),)."""
    announce(CHAINED)
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, NP)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    gain, offset = (
        tl.load(scale + columns, mask=columns < N, other=0.0),
        tl.load(shift + columns, mask=columns < N, other=0.0),
    )
    wait(CHAINED)
    values = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    scaled = (normalised(values, N, NP, 1e-5) * gain[None, :] + offset[None, :]) * factor
    tl.store(out + rows[:, None] * N + columns[None, :], scaled, mask=inside)


@triton.jit
def embedded(ids, known, table, out, N: tl.constexpr, NP: tl.constexpr, CHAINED: tl.constexpr):
    """out [n, N] = table[ids], zeros where `known` is 0. Grid (n,)."""
    announce(CHAINED)
    at, columns = tl.program_id(0), tl.arange(0, NP)
    wait(CHAINED)
    there = tl.load(known + at).to(tl.float32)
    values = tl.load(table + tl.load(ids + at).to(tl.int64) * N + columns, mask=columns < N, other=0.0)
    tl.store(out + at * N + columns, values * there, mask=columns < N)


@triton.jit(do_not_specialize=["units"])
def looking_ahead(
    x, w, bias, out, pool, own, units, page, out_tail, C: tl.constexpr, N: tl.constexpr, TOKENS: tl.constexpr,
    AHEAD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out float32 [units TOKENS, N] = leaky(convolution of x float32 [units, TOKENS + AHEAD, C]
    with w [N, AHEAD + 1, C]); the last two tokens' rows also go into the own page at `out_tail`,
    [2, N]. Grid (ceil(N / BN), ceil(units TOKENS / BM))."""
    announce(CHAINED)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    there = rows < units * TOKENS
    unit, token = rows // TOKENS, rows % TOKENS
    wait(CHAINED)
    total = tl.zeros([BM, BN], tl.float32)
    for tap in range(AHEAD + 1):
        for first in range(0, C, BK):
            inner = first + tl.arange(0, BK)
            fits = inner < C
            here = w + columns[None, :] * ((AHEAD + 1) * C) + tap * C + inner[:, None]
            weights = tl.load(here, mask=(columns < N)[None, :] & fits[:, None], other=0.0)
            at = x + (unit * (TOKENS + AHEAD) + token + tap)[:, None] * C + inner[None, :]
            values = tl.load(at, mask=there[:, None] & fits[None, :], other=0.0)
            total = product(values.to(w.dtype.element_ty), weights, total)
    total += tl.load(bias + columns, mask=columns < N, other=0.0)[None, :]
    total = tl.where(total > 0, total, total * 0.01)
    inside = there[:, None] & (columns < N)[None, :]
    tl.store(out + rows[:, None] * N + columns[None, :], total, mask=inside)
    last = inside & (token >= TOKENS - 2)[:, None]
    base = tl.load(own + unit, mask=there, other=0).to(tl.int64) * page + out_tail + (token - (TOKENS - 2)) * N
    tl.store(pool + base[:, None] + columns[None, :], total.to(pool.dtype.element_ty), mask=last)
