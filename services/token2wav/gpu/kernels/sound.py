"""Convolutions of the vocoder over windows of several streams, time-major [rows, columns of time, channels], float32.

A window is the same stretch of each layer for every stream, but a sentence begins and ends somewhere: columns outside it are zeros to
every layer. `first` int32 [batch] is the first frame that the window renders, `end` the frames of the sentence (very many while unknown);
column `i` of a buffer that starts at `start` is column first * RATE + start + i of the layer, real from 0 to end * RATE + EXTRA.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.chain import announce, wait

NONE, SNAKE, LEAKY = 0, 1, 2


@triton.jit
def snake(x, alpha):
    """x + sin(alpha x)^2 / alpha."""
    wave = tl.sin(x * alpha)
    return x + wave * wave * (1.0 / (alpha + 1e-9))


@triton.jit(
    do_not_specialize=[
        "batch", "x_offset", "x_batch", "columns_in", "columns_out", "start_in", "shift", "beside_columns", "residual_shift",
        "beside_shift",
        "start_out",
    ]
)  # fmt: skip
def windowed_convolution(
    x, w, bias, shapes, alpha_in, residual, beside, out, alpha_out, active, first, end, batch, x_offset, x_batch, columns_in, columns_out,
    start_in, shift, beside_columns, residual_shift, beside_shift, start_out, slope,
    C: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr, PLACED: tl.constexpr, VARIANTS: tl.constexpr, X_VARIANTS: tl.constexpr,
    MEAN: tl.constexpr,
    ACTIVATION: tl.constexpr, MASKED: tl.constexpr, RATE: tl.constexpr, EXTRA: tl.constexpr,
    RESIDUAL: tl.constexpr, RESIDUAL_VARIANTS: tl.constexpr, BESIDE: tl.constexpr, MIRROR: tl.constexpr, RAW: tl.constexpr,
    ACTIVE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out[v, b, i, n] = bias[v, n] + sum over taps t and channels c of w_v[n, t, c] in[b, i + shift_v + t * dilation_v, c].

    x [X_VARIANTS, batch, x_batch elements], columns STEP apart from x_offset on (a strided convolution is one tap of many channels);
    MEAN: the mean over that many variants is the input. shapes int32 [VARIANTS, 4]: taps, dilation, offset of w_v, shift.
    ACTIVATION: of the input, snake with alpha_in [VARIANTS, C] or leaky with `slope`. RESIDUAL: + residual[v, b, i + residual_shift, n].
    BESIDE: + beside[b, column, n], which starts beside_shift columns before; MIRROR: one column later, column 0 being column 2's
    mirror image.
    RAW: store it; ACTIVE: store snake of it with alpha_out [VARIANTS, N]. Grid (ceil(columns_out / BM), ceil(N / BN), batch * VARIANTS).
    """
    announce(CHAINED)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    b, v = tl.program_id(2) % batch, tl.program_id(2) // batch
    taps, dilation = tl.load(shapes + v * 4), tl.load(shapes + v * 4 + 1)
    weights_at, from_tap = tl.load(shapes + v * 4 + 2), tl.load(shapes + v * 4 + 3) + shift
    shift_bias = tl.load(bias + v * N + columns, mask=columns < N, other=0.0)
    wait(CHAINED)
    begin, length = tl.load(first + b) * RATE, tl.load(end + b) * RATE + EXTRA
    which = ((v if X_VARIANTS > 1 else 0) * batch + b).to(tl.int64)
    # Whole columns by way of the constant, which says how the addresses are aligned.
    source = x + x_offset + which * x_batch if PLACED else x + which * columns_in * C
    total = tl.zeros([BM, BN], tl.float32)
    chunks: tl.constexpr = (C + BK - 1) // BK
    for at in range(taps * chunks):
        tap, inner = at // chunks, at % chunks * BK + tl.arange(0, BK)
        here = rows + from_tap + tap * dilation
        there = (here >= 0) & (here < columns_in) & (rows < columns_out)
        if MASKED:
            column = here + start_in + begin
            there = there & (column >= 0) & (column < length)
        fits = there[:, None] & (inner < C)[None, :]
        values = tl.load(source + here[:, None] * STEP + inner[None, :], mask=fits, other=0.0)
        if MEAN > 1:
            for other in tl.static_range(1, MEAN):
                values += tl.load(source + other * batch * columns_in * C + here[:, None] * STEP + inner[None, :], mask=fits, other=0.0)
            values = values * (1.0 / MEAN)
        if ACTIVATION == 1:
            alpha = tl.load(alpha_in + v * C + inner, mask=inner < C, other=1.0)
            values = snake(values, alpha[None, :])
        if ACTIVATION == 2:
            values = tl.where(values > 0, values, values * slope)
        kernel = w + weights_at + columns[None, :] * (taps * C) + tap * C + inner[:, None]
        weights = tl.load(kernel, mask=(columns < N)[None, :] & (inner < C)[:, None], other=0.0)
        total = tl.dot(values.to(w.dtype.element_ty), weights, total, input_precision=PRECISION)
    total += shift_bias[None, :]
    inside = (rows < columns_out)[:, None] & (columns < N)[None, :]
    to = ((v * batch + b).to(tl.int64) * columns_out + rows)[:, None] * N + columns[None, :]
    if RESIDUAL:
        place = ((v if RESIDUAL_VARIANTS > 1 else 0) * batch + b).to(tl.int64) * (columns_out + 2 * residual_shift) + rows + residual_shift
        total += tl.load(residual + place[:, None] * N + columns[None, :], mask=inside, other=0.0)
    if BESIDE:
        place = rows + beside_shift
        if MIRROR:
            place = tl.where(rows + start_out + begin == 0, place + 1, place - 1)
        there = inside & ((place >= 0) & (place < beside_columns))[:, None]
        total += tl.load(beside + (b.to(tl.int64) * beside_columns + place)[:, None] * N + columns[None, :], mask=there, other=0.0)
    if RAW:
        tl.store(out + to, total, mask=inside)
    if ACTIVE:
        alpha = tl.load(alpha_out + v * N + columns, mask=columns < N, other=1.0)
        tl.store(active + to, snake(total, alpha[None, :]), mask=inside)
