"""Matrix products of the diffusion transformer, between a residual stream and norms that the time
scales and shifts.

The stream is kept three times: x float32 [M, N]; `copy` [M, N] in the operand type, multiplied by
`gain` float32 [N], one more than the scale of the norm that reads it next; and `moments` float32
[M, parts, 2], mean and sum of squared distances from it of each PART columns of x. A norm is then
applied behind its product: norm(x) gain w^T = spread (copy w^T - mean `gained`), where gained
float32 is what w makes of the gain. The shift is in the bias. Rows and weights as in
`kernels.linear`.

DESCRIBED: the left operand and w are TMA descriptors, in blocks [BM, BK] and [BN, BK].
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.kept_numbers import keep_vectors
from services.token2wav.gpu.kernels.linear import keep_tail, product


@triton.jit
def keep_stream(
    result, x, copy, moments, gain, rows, columns, fits, part, count, M, N: tl.constexpr, PART: tl.constexpr
):
    """Store result float32 [BM, BN], of which the columns with `fits` count, as part `part` of the
    stream. count: how many columns those are.
    """
    inside = (rows < M)[:, None] & fits[None, :]
    at = rows[:, None] * N + columns[None, :]
    tl.store(x + at, result, mask=inside)
    scale = tl.load(gain + columns, mask=fits, other=0.0)
    tl.store(copy + at, (result * scale[None, :]).to(copy.dtype.element_ty), mask=inside)
    mean = tl.sum(tl.where(fits[None, :], result, 0.0), axis=1) / count
    away = tl.where(fits[None, :], result - mean[:, None], 0.0)
    parts: tl.constexpr = (N + PART - 1) // PART
    here = moments + (rows * parts + part) * 2
    tl.store(here, mean, mask=rows < M)
    tl.store(here + 1, tl.sum(away * away, axis=1), mask=rows < M)


@triton.jit
def row_moments(moments, rows, M, N: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr, EPS: tl.constexpr):
    """Mean and inverse deviation, float32 [BM] each, zeros from row M on; joined from the parts as
    in Chan et al., "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
    1979.
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
    return mean, tl.where(rows < M, tl.rsqrt(variance + EPS), 0.0)


@triton.jit
def stream_product(
    a, w, first_row, first_column, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """float32 [BM, BN]: rows and columns from the first ones on of a [M, K] times w [N, K]. Those
    from M and N on mean nothing.
    """
    total = tl.zeros([BM, BN], tl.float32)
    if DESCRIBED:
        for first in range(0, K, BK):
            total = product(a.load([first_row, first]), w.load([first_column, first]).T, total)
    else:
        # The last ones again instead of a mask, for which each load would be tested.
        rows = tl.minimum(first_row + tl.arange(0, BM), M - 1)
        columns = tl.minimum(first_column + tl.arange(0, BN), N - 1)
        for first in range(0, K, BK):
            inner = first + tl.arange(0, BK)
            if K % BK == 0:
                weights = tl.load(w + columns[None, :] * K + inner[:, None])
                values = tl.load(a + rows[:, None] * K + inner[None, :])
            else:
                weights = tl.load(w + columns[None, :] * K + inner[:, None], mask=(inner < K)[:, None], other=0.0)
                values = tl.load(a + rows[:, None] * K + inner[None, :], mask=(inner < K)[None, :], other=0.0)
            total = product(values, weights, total)
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


@triton.jit
def heads_normed(x, weight, bias, EPS: tl.constexpr, WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The layer norm of each WIDTH columns of x float32 [BM, BN]; weight, bias float32 [WIDTH]."""
    heads: tl.constexpr = BN // WIDTH
    channel = tl.arange(0, WIDTH)
    gain, shift = tl.load(weight + channel), tl.load(bias + channel)
    apart = tl.reshape(x, [BM, heads, WIDTH])
    away = apart - (tl.sum(apart, axis=2) / WIDTH)[:, :, None]
    spread = tl.rsqrt(tl.sum(away * away, axis=2) / WIDTH + EPS)
    return tl.reshape(away * spread[:, :, None] * gain[None, None, :] + shift[None, None, :], [BM, BN])


@triton.jit(do_not_specialize=["M"])
def modulated_queries_keys_values(
    copy, moments, gained, w, bias, turns, head_norms, position, queries, pool, kept, own, M, page, offset,
    N: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, RATIO: tl.constexpr, LARGEST: tl.constexpr,
    PLACES: tl.constexpr, HEAD_EPS: tl.constexpr, PART: tl.constexpr,
    PP: tl.constexpr, EPS: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr, DESCRIBED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """The modulated norm of the stream [M, K] times the joined weights [3 N, K]; queries go to
    [M, N], keys and values to each unit's own page, as in `linear.queries_keys_values`.

    PLACES: the first WIDTH channels of queries and keys, which are the first head, are turned by
    their frame's place, `turned`; position int32 [units]: frames before the unit. HEAD_EPS: each
    head of queries and keys is normed, `heads_normed`; head_norms float32 [2, 2, WIDTH]: weight and
    bias for queries, then for keys. Where one is 0 it is not done. Grid (3 N / BN, ceil(M / BM)),
    BN a divisor of N, and with HEAD_EPS or RATIO above 1 a multiple of WIDTH.
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    section = tl.program_id(0) * BN // N
    first = tl.program_id(0) * BN - section * N
    unit, row, frame = rows // (ROWS * FRAMES), rows // FRAMES % ROWS, rows % FRAMES
    shift, gains = tl.load(bias + columns), tl.load(gained + columns)
    at_layer = tl.load(own + unit, mask=rows < M, other=0).to(tl.int64) * page + offset
    place = tl.load(position + unit, mask=rows < M, other=0) + frame
    wait(CHAINED)
    mean, spread = row_moments(moments, rows, M, K, PART, PP, EPS)
    total = stream_product(
        copy, w, tl.program_id(1) * BM, tl.program_id(0) * BN, M, 3 * N, K, BM, BN, BK, DESCRIBED
    )  # fmt: skip
    result = (total - mean[:, None] * gains[None, :]) * spread[:, None] + shift[None, :]
    if HEAD_EPS > 0:  # noqa: SIM102  # one is known to the compiler, the other is not
        if section < 2:
            norms = head_norms + section * (2 * WIDTH)
            result = heads_normed(result, norms, norms + WIDTH, HEAD_EPS, WIDTH, BM, BN)
    if PLACES > 0:  # noqa: SIM102
        if (section < 2) & (first < WIDTH):
            result = turned(result, turns, place, first, WIDTH, PLACES, BM, BN)
    if section == 0:
        here = queries + rows[:, None] * N + columns[None, :]
        tl.store(here, result.to(queries.dtype.element_ty), mask=(rows < M)[:, None])
    else:
        keep_vectors(
            result, pool, kept, at_layer, section - 1, row, frame, first, rows < M, N, WIDTH, FRAMES, ROWS, RATIO,
            LARGEST, BM, BN,
        )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def modulated_gelu(
    copy, moments, gained, w, bias, out, M, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr,
    EPS: tl.constexpr, DESCRIBED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, N] = gelu (by its tangent approximation) of the modulated norm of the stream [M, K]
    times w [N, K]. Grid (ceil(N / BN), ceil(M / BM)).
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    shift = tl.load(bias + columns, mask=columns < N, other=0.0)
    gains = tl.load(gained + columns, mask=columns < N, other=0.0)
    wait(CHAINED)
    mean, spread = row_moments(moments, rows, M, K, PART, PP, EPS)
    total = stream_product(copy, w, tl.program_id(1) * BM, tl.program_id(0) * BN, M, N, K, BM, BN, BK, DESCRIBED)
    result = (total - mean[:, None] * gains[None, :]) * spread[:, None] + shift[None, :]
    bent = 1.5957691216057308 * (result + 0.044715 * result * result * result)
    result = result / (1.0 + tl.exp(-bent))
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        result.to(out.dtype.element_ty),
        mask=(rows < M)[:, None] & (columns < N)[None, :],
    )


@triton.jit(do_not_specialize=["M"])
def gated_onto_stream(
    a, w, bias, gate, x, copy, moments, gain, M, N: tl.constexpr, K: tl.constexpr, ONTO: tl.constexpr,
    KEPT: tl.constexpr, DESCRIBED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """The stream += gate (a [M, K] w^T + bias), w [N, K], bias and gate float32 [N]; its parts are
    of BN columns. Not ONTO: the stream becomes a w^T + bias. Not KEPT: only x is stored, for what
    reads nothing else of the stream. Grid (ceil(N / BN), ceil(M / BM)).
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    fits = columns < N
    shift = tl.load(bias + columns, mask=fits, other=0.0)
    if ONTO:
        opened = tl.load(gate + columns, mask=fits, other=0.0)
    wait(CHAINED)
    result = stream_product(a, w, tl.program_id(1) * BM, tl.program_id(0) * BN, M, N, K, BM, BN, BK, DESCRIBED)
    result += shift[None, :]
    inside = (rows < M)[:, None] & fits[None, :]
    if ONTO:
        before = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
        result = before + opened[None, :] * result
    if KEPT:
        count = tl.minimum(N - tl.program_id(0) * BN, BN)
        keep_stream(result, x, copy, moments, gain, rows, columns, fits, tl.program_id(0), count, M, N, BN)
    else:
        tl.store(x + rows[:, None] * N + columns[None, :], result, mask=inside)


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
    result = stream_product(inputs, w, tl.program_id(1) * BM, tl.program_id(0) * BN, M, N, K, BM, BN, BK, False)
    result += shift[None, :]
    at = rows[:, None] * N + columns[None, :]
    tl.store(x + at, result, mask=inside)
    tl.store(copy + at, result.to(copy.dtype.element_ty), mask=inside)
    keep_tail(result, pool, own, rows, columns, inside, page, tail, N, FRAMES, ROWS, KEPT)


@triton.jit
def modulated_euler_step(
    copy, moments, gained, w, bias, x, inputs, dt, guidance, N: tl.constexpr, PART: tl.constexpr, PP: tl.constexpr,
    EPS: tl.constexpr, FRAMES: tl.constexpr, BINS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """x [units, FRAMES, BINS] += dt times the guided velocity, which is the modulated norm of the
    stream times w [BINS, N] in both guidance rows; x also goes into the first BINS columns of
    inputs [units, 2, FRAMES, 4 BINS]. Grid (units, ceil(FRAMES / BM), ceil(BINS / BN)).
    """
    announce(CHAINED)
    unit, first, first_bin = tl.program_id(0), tl.program_id(1) * BM, tl.program_id(2) * BN
    frame, bins = first + tl.arange(0, BM), first_bin + tl.arange(0, BN)
    fits = bins < BINS
    constant = tl.load(bias + bins, mask=fits, other=0.0)
    gains = tl.load(gained + bins, mask=fits, other=0.0)
    # Frames behind the block's end are rows of the other guidance row, or none: not stored.
    last = (unit + 1) * 2 * FRAMES
    guided = tl.zeros([BM, BN], tl.float32) + constant[None, :]
    wait(CHAINED)
    for row in tl.static_range(2):
        begin = (unit * 2 + row) * FRAMES + first
        mean, spread = row_moments(moments, begin + tl.arange(0, BM), last, N, PART, PP, EPS)
        total = stream_product(copy, w, begin, first_bin, last, BINS, N, BM, BN, BK, False)
        velocity = (total - mean[:, None] * gains[None, :]) * spread[:, None]
        guided += velocity * (1.0 + guidance) if row == 0 else velocity * -guidance
    at = (unit * FRAMES + frame)[:, None] * BINS + bins[None, :]
    inside = (frame < FRAMES)[:, None] & fits[None, :]
    moved = tl.load(x + at, mask=inside, other=0.0) + dt * guided
    tl.store(x + at, moved, mask=inside)
    operand = moved.to(inputs.dtype.element_ty)
    for row in tl.static_range(2):
        to = inputs + ((unit * 2 + row) * FRAMES + frame)[:, None] * (4 * BINS) + bins[None, :]
        tl.store(to, operand, mask=inside)
