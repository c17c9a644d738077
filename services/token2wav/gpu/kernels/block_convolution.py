"""The causal convolutions inside the blocks of Step-Audio2's diffusion transformer: rows that are
normed and stand behind the frames before them, and products over several such rows.

Rows with their past: [units * ROWS * (KEPT + FRAMES), N], KEPT frames of the previous block, zeros
in front of the stream, then the unit's own. So a convolution is one matrix product, whose left
operand is the same rows once for each tap, and needs no condition.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.convolution import mish
from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import normalised, product
from services.token2wav.gpu.kernels.modulated import keep_stream


@triton.jit(do_not_specialize=["M"])
def normed_rows(
    x, gain, shift, out, pool, own, before, previous, position, M, page, tail, N: tl.constexpr, NP: tl.constexpr,
    EPS: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr, KEPT: tl.constexpr, MISH: tl.constexpr,
    BM: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, N], rows with their past, = norm(x) gain + shift of x float32 [units ROWS FRAMES, N],
    through Mish with MISH; gain, shift float32 [N].

    The last KEPT frames of a unit also go into its page at `tail`, [ROWS, KEPT, N]. The past comes
    from the page `before` int32 [units]; or, where the previous block is unit `previous` of the
    same batch, from x, because this very launch writes the page. position int32 [units]: frames
    before the unit, negative where it begins with padding. Grid (ceil(M / BM),).
    """
    announce(CHAINED)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    both, frame = rows // (KEPT + FRAMES), rows % (KEPT + FRAMES) - KEPT
    unit, row = both // ROWS, both % ROWS
    columns = tl.arange(0, NP)
    fits, there = columns < N, rows < M
    # No kernel writes these tables.
    left = tl.load(previous + unit, mask=there, other=-1)
    old = tl.load(before + unit, mask=there, other=-1)
    real = there & (tl.load(position + unit, mask=there, other=0) + frame >= 0)
    past = frame < 0
    here = real & ((frame >= 0) | (left >= 0))
    mine = tl.load(own + unit, mask=there, other=0).to(tl.int64) * page + tail
    scale, added = tl.load(gain + columns, mask=fits, other=0.0), tl.load(shift + columns, mask=fits, other=0.0)
    source = tl.where(past, (left * ROWS + row) * FRAMES + FRAMES, both * FRAMES) + frame
    wait(CHAINED)
    values = tl.load(x + source[:, None] * N + columns[None, :], mask=here[:, None] & fits[None, :], other=0.0)
    result = normalised(values, N, NP, EPS) * scale[None, :] + added[None, :]
    if MISH:
        result = mish(result)
    kept = pool + (old.to(tl.int64) * page + tail + (row * KEPT + frame + KEPT) * N)[:, None] + columns[None, :]
    stored = tl.load(kept, mask=(real & past & (left < 0) & (old >= 0))[:, None] & fits[None, :], other=0.0)
    operand = tl.where(here[:, None], result, 0.0).to(out.dtype.element_ty) + stored
    tl.store(out + rows[:, None] * N + columns[None, :], operand, mask=there[:, None] & fits[None, :])
    last = there & (frame >= FRAMES - KEPT)
    to = pool + (mine + (row * KEPT + frame - (FRAMES - KEPT)) * N)[:, None] + columns[None, :]
    tl.store(to, operand, mask=last[:, None] & fits[None, :])


@triton.jit(do_not_specialize=["M"])
def convolved(
    a, w, bias, gate, x, copy, moments, gain, M, N: tl.constexpr, C: tl.constexpr, FRAMES: tl.constexpr,
    TAPS: tl.constexpr, ONTO: tl.constexpr, DESCRIBED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """x float32 [units ROWS FRAMES, N] = the convolution of a [M, C], rows with TAPS - 1 frames of
    past, with w [N, TAPS C], plus bias.

    ONTO: gate float32 [N] times that is added to x, which is kept as the stream of
    `kernels.modulated`, in parts of BN columns. DESCRIBED as there. Grid (ceil(N / BN), ceil(M /
    BM)).
    """
    announce(CHAINED)
    begin, first_column = tl.program_id(1) * BM, tl.program_id(0) * BN
    rows, columns = begin + tl.arange(0, BM), first_column + tl.arange(0, BN)
    fits = columns < N
    shift = tl.load(bias + columns, mask=fits, other=0.0)
    if ONTO:
        opened = tl.load(gate + columns, mask=fits, other=0.0)
    total = tl.zeros([BM, BN], tl.float32)
    chunks: tl.constexpr = (C + BK - 1) // BK
    wait(CHAINED)
    for at in range(TAPS * chunks):  # a single loop is pipelined across taps
        tap, inner = at // chunks, at % chunks * BK
        if DESCRIBED:
            # Channels from C on are zeros on the left, whatever they are on the right.
            total = product(a.load([begin + tap, inner]), w.load([first_column, tap * C + inner]).T, total)
        else:
            channel = inner + tl.arange(0, BK)
            has = channel < C
            seen = tl.minimum(rows + tap, M - 1)
            values = tl.load(a + seen[:, None] * C + channel[None, :], mask=has[None, :], other=0.0)
            here = w + columns[None, :] * (TAPS * C) + tap * C + channel[:, None]
            weights = tl.load(here, mask=fits[None, :] & has[:, None], other=0.0)
            total = product(values, weights, total)
    result = total + shift[None, :]
    pitch: tl.constexpr = FRAMES + TAPS - 1
    real = (rows < M) & (rows % pitch < FRAMES)
    stream = rows // pitch * FRAMES + rows % pitch
    inside = real[:, None] & fits[None, :]
    at = stream[:, None] * N + columns[None, :]
    if ONTO:
        result = tl.load(x + at, mask=inside, other=0.0) + opened[None, :] * result
        # A row that stands for no frame lies behind the last one.
        kept = tl.where(real, stream, M)
        count = tl.minimum(N - first_column, BN)
        keep_stream(result, x, copy, moments, gain, kept, columns, fits, tl.program_id(0), count, M, N, BN)
    else:
        tl.store(x + at, result, mask=inside)
