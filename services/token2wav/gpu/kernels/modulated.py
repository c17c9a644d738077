"""Matrix products of the diffusion transformer, between a residual stream and norms that the time
scales and shifts.

The stream is kept three times: x float32 [M, N]; `copy` [M, N], the same in the operand type, which
products read; and `moments` float32 [M, parts, 2], mean and sum of squared distances from it of
each PART columns, by which a product normalises rows without a pass over them. What the time adds
to a norm is folded into the bias behind it, so `gain` float32 [N], one more than the scale, is all
that is left of it. Rows and weights as in `kernels.linear`.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, fetch_weights, wait
from services.token2wav.gpu.kernels.linear import keep_tail, product


@triton.jit
def keep_stream(result, x, copy, moments, rows, columns, fits, part, count, M, N: tl.constexpr, PART: tl.constexpr):
    """Store result float32 [BM, BN], of which the columns with `fits` count, as part `part` of the
    stream. count: how many columns those are.
    """
    inside = (rows < M)[:, None] & fits[None, :]
    at = rows[:, None] * N + columns[None, :]
    tl.store(x + at, result, mask=inside)
    tl.store(copy + at, result.to(copy.dtype.element_ty), mask=inside)
    mean = tl.sum(tl.where(fits[None, :], result, 0.0), axis=1) / count
    away = tl.where(fits[None, :], result - mean[:, None], 0.0)
    parts: tl.constexpr = (N + PART - 1) // PART
    here = moments + (rows * parts + part) * 2
    tl.store(here, mean, mask=rows < M)
    tl.store(here + 1, tl.sum(away * away, axis=1), mask=rows < M)


@triton.jit
def row_moments(moments, rows, M, N: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr, EPS: tl.constexpr):
    """Mean and inverse deviation, float32 [BM] each, joined from the parts as in Chan et al.,
    "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.
    """
    parts: tl.constexpr = (N + PART - 1) // PART
    part = tl.arange(0, PP)
    there = (rows < M)[:, None] & (part < parts)[None, :]
    here = moments + (rows[:, None] * parts + part[None, :]) * 2
    means = tl.load(here, mask=there, other=0.0)
    squares = tl.load(here + 1, mask=there, other=0.0)
    counts = tl.maximum(tl.minimum(N - part * PART, PART), 0).to(tl.float32)
    mean = tl.sum(means * counts[None, :], axis=1) / N
    away = means - mean[:, None]
    variance = tl.sum(squares + counts[None, :] * away * away, axis=1) / N
    return mean, tl.rsqrt(variance + EPS)


@triton.jit
def normed_product(
    copy, gain, w, mean, spread, rows, columns, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """float32 [BM, BN]: (copy [M, K] - mean) spread gain, times w [N, K]."""
    total = tl.zeros([BM, BN], tl.float32)
    for first in range(0, K, BK):
        inner = first + tl.arange(0, BK)
        weights = tl.load(
            w + columns[None, :] * K + inner[:, None], mask=(columns < N)[None, :] & (inner < K)[:, None], other=0.0
        )
        values = tl.load(
            copy + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0.0
        )
        scale = tl.load(gain + inner, mask=inner < K, other=0.0)
        normal = (values.to(tl.float32) - mean[:, None]) * spread[:, None] * scale[None, :]
        total = product(normal.to(w.dtype.element_ty), weights, total)
    return total


@triton.jit
def turned(x, turns, place, first, WIDTH: tl.constexpr, PLACES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """x float32 [BM, BN], channels from `first` on, with neighbours turned as pairs at the frames
    `place`; channels from WIDTH on stay. turns float32 [2, PLACES, WIDTH / 2]: cosines, then sines.
    """
    pair = first // 2 + tl.arange(0, BN // 2)
    at = turns + place[:, None] * (WIDTH // 2) + pair[None, :]
    has = (place >= 0)[:, None] & (pair < WIDTH // 2)[None, :]
    cosine = tl.load(at, mask=has, other=1.0)
    sine = tl.load(at + PLACES * (WIDTH // 2), mask=has, other=0.0)
    even, odd = tl.split(tl.reshape(x, [BM, BN // 2, 2]))
    return tl.reshape(tl.join(even * cosine - odd * sine, odd * cosine + even * sine), [BM, BN])


@triton.jit(do_not_specialize=["M"])
def modulated_queries_keys_values(
    copy, moments, gain, w, bias, turns, position, queries, pool, own, M, page, offset, N: tl.constexpr,
    WIDTH: tl.constexpr, PLACES: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr, EPS: tl.constexpr,
    FRAMES: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """The modulated norm of the stream times the joined weights [3 N, N]; queries go to [M, N],
    keys and values to each unit's own page, as in `linear.queries_keys_values`.

    The first WIDTH channels of queries and keys, which are the first head, are turned by their
    frame's place, `turned`; position int32 [units]: frames before the unit. Grid (3 N / BN, ceil(M
    / BM)), BN a divisor of N.
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    fetch_weights(w, columns, 3 * N, N, CHAINED)
    section = tl.program_id(0) * BN // N
    first = tl.program_id(0) * BN - section * N
    unit, row, frame = rows // (ROWS * FRAMES), rows // FRAMES % ROWS, rows % FRAMES
    shift = tl.load(bias + columns)
    base = tl.load(own + unit, mask=rows < M, other=0).to(tl.int64) * page + offset
    base += ((row * 2 + section - 1) * FRAMES + frame) * N
    place = tl.load(position + unit, mask=rows < M, other=0) + frame
    wait(CHAINED)
    mean, spread = row_moments(moments, rows, M, N, PART, PP, EPS)
    result = normed_product(copy, gain, w, mean, spread, rows, columns, M, 3 * N, N, BM, BN, BK) + shift[None, :]
    if (section < 2) & (first < WIDTH):
        result = turned(result, turns, place, first, WIDTH, PLACES, BM, BN)
    result = result.to(w.dtype.element_ty)
    channel = first + tl.arange(0, BN)
    if section == 0:
        tl.store(queries + rows[:, None] * N + channel[None, :], result, mask=(rows < M)[:, None])
    else:
        tl.store(pool + base[:, None] + channel[None, :], result, mask=(rows < M)[:, None])


@triton.jit(do_not_specialize=["M"])
def modulated_gelu(
    copy, moments, gain, w, bias, out, M, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr,
    EPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, N] = gelu (by its tangent approximation) of the modulated norm of the stream [M, K]
    times w [N, K]. Grid (ceil(N / BN), ceil(M / BM)).
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    fetch_weights(w, columns, N, K, CHAINED)
    shift = tl.load(bias + columns, mask=columns < N, other=0.0)
    wait(CHAINED)
    mean, spread = row_moments(moments, rows, M, K, PART, PP, EPS)
    result = normed_product(copy, gain, w, mean, spread, rows, columns, M, N, K, BM, BN, BK) + shift[None, :]
    bent = 1.5957691216057308 * (result + 0.044715 * result * result * result)
    result = result / (1.0 + tl.exp(-bent))
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        result.to(out.dtype.element_ty),
        mask=(rows < M)[:, None] & (columns < N)[None, :],
    )


@triton.jit
def plain_product(
    a, w, rows, columns, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """float32 [BM, BN]: a [M, K] times w [N, K]."""
    total = tl.zeros([BM, BN], tl.float32)
    for first in range(0, K, BK):
        inner = first + tl.arange(0, BK)
        weights = tl.load(
            w + columns[None, :] * K + inner[:, None], mask=(columns < N)[None, :] & (inner < K)[:, None], other=0.0
        )
        values = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0.0
        )
        total = product(values, weights, total)
    return total


@triton.jit(do_not_specialize=["M"])
def gated_onto_stream(
    a, w, bias, gate, x, copy, moments, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """The stream += gate (a [M, K] w^T + bias), w [N, K], bias and gate float32 [N]; its parts are
    of BN columns. Grid (ceil(N / BN), ceil(M / BM)).
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    fetch_weights(w, columns, N, K, CHAINED)
    fits = columns < N
    shift, opened = tl.load(bias + columns, mask=fits, other=0.0), tl.load(gate + columns, mask=fits, other=0.0)
    wait(CHAINED)
    added = plain_product(a, w, rows, columns, M, N, K, BM, BN, BK) + shift[None, :]
    inside = (rows < M)[:, None] & fits[None, :]
    before = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    count = tl.minimum(N - tl.program_id(0) * BN, BN)
    result = before + opened[None, :] * added
    keep_stream(result, x, copy, moments, rows, columns, fits, tl.program_id(0), count, M, N, BN)


@triton.jit(do_not_specialize=["M"])
def joined_inputs(
    inputs, w, bias, x, copy, pool, own, M, page, tail, N: tl.constexpr, K: tl.constexpr, FRAMES: tl.constexpr,
    ROWS: tl.constexpr, KEPT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """x float32 [M, N], and copy in the operand type, = inputs [M, K] w^T + bias; the last KEPT
    frames of each unit are also stored in its page at `tail`, [ROWS, KEPT, N]. Grid (ceil(N / BN),
    ceil(M / BM)).
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    shift = tl.load(bias + columns, mask=columns < N, other=0.0)
    wait(CHAINED)
    result = plain_product(inputs, w, rows, columns, M, N, K, BM, BN, BK) + shift[None, :]
    at = rows[:, None] * N + columns[None, :]
    tl.store(x + at, result, mask=inside)
    tl.store(copy + at, result.to(copy.dtype.element_ty), mask=inside)
    keep_tail(result, pool, own, rows, columns, inside, page, tail, N, FRAMES, ROWS, KEPT)


@triton.jit
def modulated_euler_step(
    copy, moments, gain, w, bias, x, inputs, dt, guidance, N: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr,
    EPS: tl.constexpr, FRAMES: tl.constexpr, BINS: tl.constexpr, BP: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """x [units, FRAMES, BINS] += dt (w u + bias), where u joins the modulated norms of both
    guidance rows of the stream: the map to a velocity is linear, so the guidance is applied in
    front of it. x also goes into the first BINS columns of inputs [units, 2, FRAMES, 4 BINS].

    w [BINS, N]. Grid (units, ceil(FRAMES / BM)).
    """
    announce(CHAINED)
    unit = tl.program_id(0)
    frame, bins = tl.program_id(1) * BM + tl.arange(0, BM), tl.arange(0, BP)
    fits = bins < BINS
    constant = tl.load(bias + bins, mask=fits, other=0.0)
    # Frames behind the block's end are rows of the other guidance row, or none: not stored.
    last = (unit + 1) * 2 * FRAMES
    guided, free = unit * 2 * FRAMES + frame, (unit * 2 + 1) * FRAMES + frame
    wait(CHAINED)
    mean, spread = row_moments(moments, guided, last, N, PART, PP, EPS)
    free_mean, free_spread = row_moments(moments, free, last, N, PART, PP, EPS)
    total = tl.zeros([BM, BP], tl.float32)
    for first in range(0, N, BK):
        inner = first + tl.arange(0, BK)
        has = (inner < N)[None, :]
        weights = tl.load(w + bins[None, :] * N + inner[:, None], mask=fits[None, :] & (inner < N)[:, None], other=0.0)
        scale = tl.load(gain + inner, mask=inner < N, other=0.0)
        there = tl.load(copy + guided[:, None] * N + inner[None, :], mask=(guided < last)[:, None] & has, other=0.0)
        without = tl.load(copy + free[:, None] * N + inner[None, :], mask=(free < last)[:, None] & has, other=0.0)
        there = (there.to(tl.float32) - mean[:, None]) * spread[:, None]
        without = (without.to(tl.float32) - free_mean[:, None]) * free_spread[:, None]
        joined = ((1.0 + guidance) * there - guidance * without) * scale[None, :]
        total = product(joined.to(w.dtype.element_ty), weights, total)
    at = (unit * FRAMES + frame)[:, None] * BINS + bins[None, :]
    inside = (frame < FRAMES)[:, None] & fits[None, :]
    moved = tl.load(x + at, mask=inside, other=0.0) + dt * (total + constant[None, :])
    tl.store(x + at, moved, mask=inside)
    operand = moved.to(inputs.dtype.element_ty)
    for row in tl.static_range(2):
        to = inputs + ((unit * 2 + row) * FRAMES + frame)[:, None] * (4 * BINS) + bins[None, :]
        tl.store(to, operand, mask=inside)
