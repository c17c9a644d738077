"""Causal convolutions over blocks, whose left context is read from the page of the previous block,
and the operations that follow them.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import keep_tail, normalised, product


@triton.jit
def mish(x):
    """x tanh(log(1 + e^x)), with one exponential; from 20 on it is x."""
    e = tl.exp(tl.minimum(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@triton.jit
def _one_source(
    x, w, pool, old, begin, rows, columns, total, M, page, tail, C: tl.constexpr, WC: tl.constexpr,
    CHANNEL: tl.constexpr, N: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr, TAPS: tl.constexpr,
    STEP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Add the product of x [M, C] with channels CHANNEL.. of a weight [N, TAPS, WC] to total. old
    [BM]: pages of the previous blocks, or -1; begin [BM]: with STEP, the first frame of the stream,
    counted from the unit's.
    """
    frame, row = rows % FRAMES, rows // FRAMES % ROWS
    base = old.to(tl.int64) * page + tail + row * (TAPS - 1) * C
    chunks: tl.constexpr = (C + BK - 1) // BK
    for at in range(TAPS * chunks):  # a single loop is pipelined across taps
        tap, inner = at // chunks, at % chunks * BK + tl.arange(0, BK)
        source = frame + tap - (TAPS - 1)
        now, then = (source >= 0) & (rows < M), (source < 0) & (old >= 0)
        if STEP > 0:
            now, then = now & (source >= begin), then & (source >= begin)
        fits = inner < C
        here = w + columns[None, :] * (TAPS * WC) + tap * WC + CHANNEL + inner[:, None]
        weights = tl.load(here, mask=(columns < N)[None, :] & fits[:, None], other=0.0)
        values = tl.load(
            x + (rows + tap - (TAPS - 1))[:, None] * C + inner[None, :], mask=now[:, None] & fits[None, :], other=0.0
        )
        past = tl.load(
            pool + (base + (source + TAPS - 1) * C)[:, None] + inner[None, :],
            mask=then[:, None] & fits[None, :],
            other=0.0,
        )
        total = product(values.to(w.dtype.element_ty) + past.to(w.dtype.element_ty), weights, total)
    return total


@triton.jit(do_not_specialize=["M"])
def causal_convolution(
    x, x2, w, bias, shortcut_w, shortcut_bias, add, out, shortcut, pool, own, before, position, M, page, tail, tail2,
    out_tail, C: tl.constexpr, C2: tl.constexpr, N: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr,
    TAPS: tl.constexpr, SHORTCUT: tl.constexpr, ADD: tl.constexpr, TAIL: tl.constexpr, STEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out float32 [M, N] = convolution of x [M, C], or of x and x2 [M, C2] concatenated, over the
    frames of each unit.

    w [N, TAPS, C + C2]. before int32 [units]: the page of the stream's previous block, -1 at the
    start of the stream, where the context is zero; at `tail` (x) and `tail2` (x2) it contains
    [ROWS, TAPS - 1, C]. position int32 [units]: mel frames before the unit, negative where it
    begins with padding, which is zero for the convolution; of STEP mel frames to a frame here, with
    STEP 0 there is no padding and it is not read. SHORTCUT: a second half of the grid computes
    shortcut [M, N] = shortcut_w [N, C + C2] times the same input, frame by frame. ADD: float32 [M,
    N] is added to out. TAIL (TAPS 3): out's last two frames are also stored in the own page at
    `out_tail`. Grid (ceil(N / BN) * (1 or 2), ceil(M / BM)).
    """
    announce(CHAINED)
    parts: tl.constexpr = (N + BN - 1) // BN
    columns = tl.program_id(0) % parts * BN + tl.arange(0, BN)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    # No kernel writes these tables.
    old = tl.load(before + rows // (ROWS * FRAMES), mask=rows < M, other=-1)
    begin = rows
    if STEP > 0:
        begin = -tl.load(position + rows // (ROWS * FRAMES), mask=rows < M, other=0) // STEP
    if SHORTCUT:  # noqa: SIM102  # one is known to the compiler, the other is not
        if tl.program_id(0) >= parts:
            wait(CHAINED)
            total = tl.zeros([BM, BN], tl.float32)
            total = _one_source(
                x, shortcut_w, pool, old, begin, rows, columns, total, M, page, tail, C, C + C2, 0, N, FRAMES, ROWS, 1,
                STEP, BK,
            )  # fmt: skip
            if C2:
                total = _one_source(
                    x2,
                    shortcut_w,
                    pool,
                    old,
                    begin,
                    rows,
                    columns,
                    total,
                    M,
                    page,
                    tail2,
                    C2,
                    C + C2,
                    C,
                    N,
                    FRAMES,
                    ROWS,
                    1,
                    STEP,
                    BK,
                )
            total += tl.load(shortcut_bias + columns, mask=columns < N, other=0.0)[None, :]
            tl.store(shortcut + rows[:, None] * N + columns[None, :], total, mask=inside)
            return
    shift = tl.load(bias + columns, mask=columns < N, other=0.0)
    total = tl.zeros([BM, BN], tl.float32)
    if (BK == C) and (C2 == 0) and (TAPS == 3):
        inner = tl.arange(0, BK)
        here = w + columns[None, :] * (3 * C) + inner[:, None]
        if N % BN == 0:
            oldest, older, now = tl.load(here), tl.load(here + C), tl.load(here + 2 * C)
        else:
            fits = (columns < N)[None, :] & (inner >= 0)[:, None]
            oldest, older = tl.load(here, mask=fits, other=0.0), tl.load(here + C, mask=fits, other=0.0)
            now = tl.load(here + 2 * C, mask=fits, other=0.0)
        frame = rows % FRAMES
        wait(CHAINED)
        base = (
            pool + (old.to(tl.int64) * page + tail + (rows // FRAMES % ROWS * 2 + frame) * C)[:, None] + inner[None, :]
        )
        at = x + rows[:, None] * C + inner[None, :]
        has, there = (old >= 0)[:, None], (rows < M)[:, None]
        early, second = (frame < 2)[:, None], (frame < 1)[:, None]
        # One after the other, because together they would not fit into the registers.
        real = there
        if STEP > 0:
            real = there & (frame - 2 >= begin)[:, None]
        a0 = tl.load(at - 2 * C, mask=real & (frame >= 2)[:, None], other=0.0).to(w.dtype.element_ty)
        a0 += tl.load(base, mask=real & has & early, other=0.0).to(w.dtype.element_ty)
        total = product(a0, oldest, total)
        if STEP > 0:
            real = there & (frame - 1 >= begin)[:, None]
        a1 = tl.load(at - C, mask=real & (frame >= 1)[:, None], other=0.0).to(w.dtype.element_ty)
        a1 += tl.load(base + C, mask=real & has & second, other=0.0).to(w.dtype.element_ty)
        total = product(a1, older, total)
        a2 = tl.load(at, mask=there, other=0.0).to(w.dtype.element_ty)
        total = product(a2, now, total)
    else:
        wait(CHAINED)
        total = _one_source(
            x, w, pool, old, begin, rows, columns, total, M, page, tail, C, C + C2, 0, N, FRAMES, ROWS, TAPS, STEP, BK
        )
        if C2:
            total = _one_source(
                x2, w, pool, old, begin, rows, columns, total, M, page, tail2, C2, C + C2, C, N, FRAMES, ROWS, TAPS,
                STEP, BK,
            )  # fmt: skip
    total += shift[None, :]
    if ADD:
        total += tl.load(add + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    tl.store(out + rows[:, None] * N + columns[None, :], total, mask=inside)
    if TAIL:
        keep_tail(total, pool, own, rows, columns, inside, page, out_tail, N, FRAMES, ROWS)


@triton.jit(do_not_specialize=["M"])
def norm_mish(
    y, scale, shift, add, out, pool, own, M, page, out_tail, N: tl.constexpr, NP: tl.constexpr, FRAMES: tl.constexpr,
    ROWS: tl.constexpr, ADD_ROWS: tl.constexpr, TAIL: tl.constexpr, BM: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, N] = mish(norm(y)) + add. y float32 [M, N]; add float32 [N], or [M, N] with ADD_ROWS.
    TAIL as above. Grid (ceil(M / BM),).
    """
    announce(CHAINED)
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, NP)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    gain, offset = (
        tl.load(scale + columns, mask=columns < N, other=0.0),
        tl.load(shift + columns, mask=columns < N, other=0.0),
    )
    wait(CHAINED)
    values = tl.load(y + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    result = mish(normalised(values, N, NP, 1e-5) * gain[None, :] + offset[None, :])
    if ADD_ROWS:
        result += tl.load(add + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    else:
        result += tl.load(add + columns, mask=columns < N, other=0.0)[None, :]
    tl.store(out + rows[:, None] * N + columns[None, :], result.to(out.dtype.element_ty), mask=inside)
    if TAIL:
        keep_tail(result, pool, own, rows, columns, inside, page, out_tail, N, FRAMES, ROWS)
