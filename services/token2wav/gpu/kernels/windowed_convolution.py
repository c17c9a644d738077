"""Convolutions of the vocoder over windows of several streams, time-major: rows are the columns of
all windows, one window after the other, each a vector of channels.

A window is the same range of each layer for every stream, but sentences have ends: columns outside
the sentence are zeros in every layer. `first` int32 [batch] is the first frame that the window
renders, `end` the frames of the sentence (a large number while unknown). Column `i` of a buffer
that starts at `start` is column first * RATE + start + i of the layer; real columns are 0 to end *
RATE + EXTRA.

The kernel that computes a layer stores it once, activated and with its zeros, so a convolution only
loads and multiplies. At the edges of a window a convolution reads its neighbour's columns. The same
number of columns of its result is invalid, and a window is wider by that number.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait

NONE, SNAKE, LEAKY = 0, 1, 2


@triton.jit
def snake(x, turns, inverse):
    """x + sin(alpha x)^2 / alpha, with turns = alpha / pi and inverse = 1 / alpha.

    The square of the sine repeats with every half turn. Between -1/2 and 1/2 it is u^2 p(u^2) with
    p from Chebyshev interpolation: within 3e-7.
    """
    u = x * turns
    u = u - tl.floor(u + 0.5)
    z = u * u
    p = z * -3.356592893600464 + 13.050100326538086
    p = p * z - 30.10146713256836
    p = p * z + 42.727195739746094
    p = p * z - 32.469669342041016
    p = p * z + 9.869604110717773
    return x + z * p * inverse


@triton.jit
def activated(total, turns, inverses, at, inside, slope, KIND: tl.constexpr, like):
    """[BM, BN] after the activation, snake with the constants at `at` [BN] or leaky; zeros where
    not `inside` [BM]; of type `like`.
    """
    result = total
    if KIND == 1:
        result = snake(total, tl.load(turns + at)[None, :], tl.load(inverses + at)[None, :])
    if KIND == 2:
        result = tl.where(total > 0, total, total * slope)
    if like == tl.float16:
        # Finite values stay finite; other values are preserved so that they are detected.
        result = tl.where(tl.abs(result) < float("inf"), tl.minimum(tl.maximum(result, -65504.0), 65504.0), result)
    return tl.where(inside[:, None], result, 0.0).to(like)


@triton.jit
def put(
    total, out, active, turns, inverses, residual, first, end, batch_of, column, real, channels, v, out_columns,
    out_rows, residual_columns,
    residual_shift, residual_rows, start_out, slope,
    OUT: tl.constexpr, RATE: tl.constexpr, EXTRA: tl.constexpr, RESIDUALS: tl.constexpr, RAW: tl.constexpr,
    ACTIVES: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Add the residual, activate, store: [BM, BN], at columns `column` [BM] of the windows
    `batch_of` where `real`.
    """
    if RESIDUALS > 0:
        place = batch_of * residual_columns + column + residual_shift
        for other in tl.static_range(RESIDUALS):
            at = residual + (v + other) * residual_rows * OUT + place[:, None] * OUT + channels[None, :]
            total += tl.load(at, mask=real[:, None], other=0.0)
    if RESIDUALS > 1:
        total = total * (1.0 / RESIDUALS)
    to = (v * out_rows + batch_of * out_columns + column)[:, None] * OUT + channels[None, :]
    if RAW:
        tl.store(out + to, total, mask=real[:, None])
    if ACTIVES > 0:
        begin, length = tl.load(first + batch_of) * RATE, tl.load(end + batch_of) * RATE + EXTRA
        there = column + start_out + begin
        inside = (there >= 0) & (there < length)
        for other in tl.static_range(ACTIVES):
            at = (v + other) * OUT + channels
            active_values = activated(total, turns, inverses, at, inside, slope, ACTIVATION, active.dtype.element_ty)
            tl.store(active + other * out_rows * OUT + to, active_values, mask=real[:, None])


@triton.jit(
    do_not_specialize=[
        "rows", "count", "x_columns", "x_shift", "x_rows", "place", "out_columns", "out_rows", "residual_columns",
        "residual_shift",
        "residual_rows", "start_out", "slope", "margin",
    ]
)  # fmt: skip
def windowed_convolution(
    x, w, scale, bias, shapes, residual, out, active, turns, inverses, first, end, rows, count, x_columns, x_shift,
    x_rows, place,
    out_columns, out_rows, residual_columns, residual_shift, residual_rows, start_out, slope, margin,
    C: tl.constexpr, UNIT: tl.constexpr, STEP: tl.constexpr, N: tl.constexpr, OUT: tl.constexpr, SUMMED: tl.constexpr,
    RATE: tl.constexpr, EXTRA: tl.constexpr, RESIDUALS: tl.constexpr, RAW: tl.constexpr, ACTIVES: tl.constexpr,
    ACTIVATION: tl.constexpr,
    MIRROR: tl.constexpr, PRECISION: tl.constexpr, DESCRIBED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """out[v, b, i, n] = bias[v, n] + scale[n] sum over taps t and channels c of w_v[t, n, c] x[v,
    b, i + lead_v + t dilation_v, c].

    rows = batch * count: `count` positions i of each window. x: windows of x_columns columns,
    variants of x_rows. In a strided convolution position i begins STEP elements after position i -
    1 and a column has UNIT; otherwise both are C. shapes int32 [variants, 4]: taps, dilation, first
    tap in w [taps of all, N, C], lead. SUMMED variants: their sum is computed (shapes of all, one
    bias), otherwise each one. N = phases * OUT: a transposed convolution computes `phases` columns
    at once, column i * phases + phase + place of its out_columns. The kernel then adds residual[v,
    b, column + residual_shift], or takes the mean with RESIDUALS of them.

    RAW: the result is stored as float32. ACTIVES: number of times that it is stored activated, in
    the type of w: by snake [ACTIVES or variants, OUT], or leaky with `slope`. MIRROR: column 0 of
    the sentence is computed as column 2. DESCRIBED: possible if input and output have the same
    columns: x, residual, out and active are TMA descriptors of `margin` rows, the variants and
    another margin in blocks [BM, BK] and [BM, BN], w of [.., C] in blocks [BN, BK]; rows after the
    last one are written, too. BN divides OUT, BK divides C. Grid (ceil(rows / BM), N / BN, variants
    or 1).
    """
    announce(CHAINED)
    row = tl.minimum(tl.program_id(0) * BM + tl.arange(0, BM), rows - 1)
    b, i = row // count, row % count
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    phase, channels = tl.program_id(1) * BN // OUT, tl.program_id(1) * BN % OUT + tl.arange(0, BN)
    v = tl.program_id(2)
    k = tl.arange(0, BK)
    chunks: tl.constexpr = C // BK
    total = tl.zeros([BM, BN], tl.float32)
    wait(CHAINED)
    for other in tl.static_range(SUMMED):
        taps, dilation = tl.load(shapes + (v + other) * 4), tl.load(shapes + (v + other) * 4 + 1)
        tap0, lead = tl.load(shapes + (v + other) * 4 + 2), tl.load(shapes + (v + other) * 4 + 3)
        if DESCRIBED:
            from_row = margin + (v + other) * x_rows + x_shift + lead + tl.program_id(0) * BM
            from_weight = tap0 * N + tl.program_id(1) * BN
            for at in range(taps * chunks):
                tap, inner = at // chunks, at % chunks * BK
                values = x.load([from_row + tap * dilation, inner])
                weights = w.load([from_weight + tap * N, inner])
                total = tl.dot(values, weights.T, total, input_precision=PRECISION)
        else:
            columns = (
                x
                + ((v + other) * x_rows + lead + x_shift) * UNIT
                + (b * x_columns * UNIT + i * STEP)[:, None]
                + k[None, :]
            )
            kernel = w + tap0 * (N * C) + n[None, :] * C + k[:, None]
            for at in range(taps * chunks):
                tap, inner = at // chunks, at % chunks * BK
                values = tl.load(columns + (tap * dilation * UNIT + inner))
                weights = tl.load(kernel + (tap * (N * C) + inner))
                total = tl.dot(values, weights, total, input_precision=PRECISION)
    total = total * tl.load(scale + n)[None, :] + tl.load(bias + v * N + n)[None, :]
    column = i * (N // OUT) + phase + place
    real = (tl.program_id(0) * BM + tl.arange(0, BM) < rows) & (column >= 0) & (column < out_columns)
    if MIRROR:
        whole = column + start_out + tl.load(first + b) * RATE
        twin = real & (whole == 2) & (column >= 2)
        if tl.max(twin.to(tl.int32), 0) > 0:
            put(
                total, out, active, turns, inverses, residual, first, end, b, column - 2, twin, channels, v,
                out_columns, out_rows, residual_columns, residual_shift, residual_rows, start_out, slope,
                OUT, RATE, EXTRA, RESIDUALS, RAW, ACTIVES, ACTIVATION,
            )  # fmt: skip
        real = real & (whole != 0)
    if DESCRIBED:
        to = tl.program_id(0) * BM + margin
        if RESIDUALS > 0:
            for other in tl.static_range(RESIDUALS):
                total += residual.load([to + (v + other) * residual_rows, tl.program_id(1) * BN])
        if RESIDUALS > 1:
            total = total * (1.0 / RESIDUALS)
        to += v * out_rows
        if RAW:
            out.store([to, tl.program_id(1) * BN], total)
        if ACTIVES > 0:
            begin, length = tl.load(first + b) * RATE, tl.load(end + b) * RATE + EXTRA
            there = i + start_out + begin
            inside = (there >= 0) & (there < length)
            active_values = activated(total, turns, inverses, v * OUT + n, inside, slope, ACTIVATION, active.dtype)
            active.store([to, tl.program_id(1) * BN], active_values)
    else:
        put(
            total, out, active, turns, inverses, residual, first, end, b, column, real, channels, v,
            out_columns, out_rows, residual_columns, residual_shift, residual_rows, start_out, slope,
            OUT, RATE, EXTRA, RESIDUALS, RAW, ACTIVES, ACTIVATION,
        )  # fmt: skip
