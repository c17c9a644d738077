"""Matrix products of the transformer layers, fused with the operations before and after them.

Activations are rows [M, channels] of all units of a batch: row = (unit * ROWS + guidance row) *
FRAMES + frame. The residual stream is float32; operands of products have the type of the weights
(bfloat16, or float32 for the laws), sums within a launch are float32. A layer norm's scale and
shift are folded into the weights that follow it. Weights are [N, K], K contiguous.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.kept_numbers import keep_vectors

NONE, GELU, SILU = 0, 1, 2


@triton.jit
def normalised(x, K: tl.constexpr, KP: tl.constexpr, EPS: tl.constexpr):
    """x float32 [BM, KP], zero from column K on -> zero mean, unit variance over the first K
    columns; zero after them.
    """
    mean = tl.sum(x, axis=1) / K
    centred = x - mean[:, None]
    if KP != K:
        centred = tl.where((tl.arange(0, KP) < K)[None, :], centred, 0.0)
    variance = tl.sum(centred * centred, axis=1) / K
    return centred * tl.rsqrt(variance + EPS)[:, None]


@triton.jit
def erf(x):
    """The error function within 2e-7 (Abramowitz and Stegun 7.1.26), without branches."""
    t = 1.0 / (1.0 + 0.3275911 * tl.abs(x))
    tail = (
        t
        * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
        * tl.exp(-x * x)
    )
    return tl.where(x < 0, tail - 1.0, 1.0 - tail)


@triton.jit
def product(a, b, total):
    """a [BM, K] times b [K, BN] added to float32 [BM, BN]; float32 operands are multiplied as such,
    not as TF32.
    """
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit(do_not_specialize=["M"])
def normed_linear(
    x, w, bias, out, M, N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, EPS: tl.constexpr, ACTIVATION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, LOOP: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [M, N] = activation(norm(x) w^T + bias). x float32 [M, K]; w [N, K]; bias float32 [N].

    Grid (ceil(N / (BN LOOP)), ceil(M / BM)): a program normalises its rows once and computes LOOP
    tiles of columns. Reads M K 4 bytes per column of the grid (from L2), N K weights once, writes M
    N.
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inner = tl.arange(0, KP)
    begin = tl.program_id(0) * (BN * LOOP) + tl.arange(0, BN)
    weights = tl.load(
        w + begin[None, :] * K + inner[:, None], mask=(inner[:, None] < K) & (begin[None, :] < N), other=0.0
    )
    wait(CHAINED)
    values = tl.load(x + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
    normal = normalised(values, K, KP, EPS).to(w.dtype.element_ty)
    for at in tl.static_range(LOOP):
        columns = begin + at * BN
        if at > 0:
            weights = tl.load(
                w + columns[None, :] * K + inner[:, None], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
            )
        shift = tl.load(bias + columns, mask=columns < N, other=0.0)
        result = product(normal, weights, tl.zeros([BM, BN], tl.float32)) + shift[None, :]
        if ACTIVATION == 1:
            result = 0.5 * result * (1.0 + erf(result * 0.7071067811865476))
        if ACTIVATION == 2:
            result = result / (1.0 + tl.exp(-result))
        tl.store(
            out + rows[:, None] * N + columns[None, :],
            result.to(out.dtype.element_ty),
            mask=(rows[:, None] < M) & (columns[None, :] < N),
        )


@triton.jit(do_not_specialize=["M"])
def queries_keys_values(
    x, w, bias, queries, pool, kept, own, M, page, offset, INNER: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
    EPS: tl.constexpr,
    FRAMES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, RATIO: tl.constexpr, LARGEST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, LOOP: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """norm(x) times the joined weights [3 INNER, K]; queries go to [M, INNER], keys and values to
    each unit's own page.

    pool: all pages, `page` elements each; own int32 [units]: the unit's page. kept, offset, WIDTH,
    RATIO, LARGEST: as in `kept_numbers`. Grid (3 INNER / (BN LOOP), ceil(M / BM)), BN LOOP a
    divisor of INNER, and BN a multiple of WIDTH where RATIO is above 1.
    """
    announce(CHAINED)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inner = tl.arange(0, KP)
    begin = tl.program_id(0) * (BN * LOOP) + tl.arange(0, BN)
    weights = tl.load(w + begin[None, :] * K + inner[:, None], mask=inner[:, None] < K, other=0.0)
    unit = rows // (ROWS * FRAMES)
    row, frame = rows // FRAMES % ROWS, rows % FRAMES
    section = tl.program_id(0) * (BN * LOOP) // INNER
    wait(CHAINED)
    at_layer = tl.load(own + unit, mask=rows < M, other=0).to(tl.int64) * page + offset
    values = tl.load(x + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
    normal = normalised(values, K, KP, EPS).to(w.dtype.element_ty)
    for at in tl.static_range(LOOP):
        columns = begin + at * BN
        if at > 0:
            weights = tl.load(w + columns[None, :] * K + inner[:, None], mask=inner[:, None] < K, other=0.0)
        shift = tl.load(bias + columns)
        result = product(normal, weights, tl.zeros([BM, BN], tl.float32)) + shift[None, :]
        if section == 0:
            here = queries + rows[:, None] * INNER + columns[None, :]
            tl.store(here, result.to(queries.dtype.element_ty), mask=(rows < M)[:, None])
        else:
            first = (tl.program_id(0) * LOOP + at) * BN - section * INNER
            keep_vectors(
                result, pool, kept, at_layer, section - 1, row, frame, first, rows < M, INNER, WIDTH, FRAMES, ROWS,
                RATIO, LARGEST, BM, BN,
            )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def onto_residual(
    a, w, bias, x, pool, own, M, page, tail, N: tl.constexpr, K: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr,
    TAIL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """x [M, N] float32 += a [M, K] w^T + bias. TAIL: the last two frames of each unit are also
    stored in its page at `tail`, [ROWS, 2, N], for the next convolution. Grid (ceil(N / BN), ceil(M
    / BM)). With BK = K the weights are loaded before the kernel waits.
    """
    announce(CHAINED)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    shift = tl.load(bias + columns, mask=columns < N, other=0.0)
    at = x + rows[:, None] * N + columns[None, :]
    if BK == K:
        inner = tl.arange(0, BK)
        weights = tl.load(w + columns[None, :] * K + inner[:, None], mask=(columns < N)[None, :], other=0.0)
        wait(CHAINED)
        before = tl.load(at, mask=inside, other=0.0)
        values = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None], other=0.0)
        total = product(values, weights, tl.zeros([BM, BN], tl.float32))
    else:
        wait(CHAINED)
        before = tl.load(at, mask=inside, other=0.0)
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
    result = before + total + shift[None, :]
    tl.store(at, result, mask=inside)
    if TAIL:
        keep_tail(result, pool, own, rows, columns, inside, page, tail, N, FRAMES, ROWS)


@triton.jit
def keep_tail(
    result, pool, own, rows, columns, inside, page, tail, N: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr,
    KEPT: tl.constexpr = 2,
):  # fmt: skip
    """Store the last KEPT frames of each unit in its page, [ROWS, KEPT, N] at `tail`."""
    row, frame = rows // FRAMES % ROWS, rows % FRAMES
    last = inside & (frame >= FRAMES - KEPT)[:, None]
    at = tl.load(own + rows // (ROWS * FRAMES), mask=frame >= FRAMES - KEPT, other=0).to(tl.int64) * page + tail
    at += (row * KEPT + frame - (FRAMES - KEPT)) * N
    tl.store(pool + at[:, None] + columns[None, :], result.to(pool.dtype.element_ty), mask=last)


@triton.jit
def wait_for_programs(counter, programs: tl.constexpr):
    """Barrier for `programs` programs, all of which must be resident. After it, what each wrote
    before can be read, bypassing the L1 cache.
    """
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < programs:
        pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["M", "first_counter"])
def feed_forward(
    x, heads, heads_bias, wide_w, wide_bias, narrow_w, narrow_bias, parts, counters, pool, own, M, page, tail,
    first_counter, N: tl.constexpr,
    H: tl.constexpr, EPS: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr, TAIL: tl.constexpr, BM: tl.constexpr,
    HIDDEN: tl.constexpr, HEADS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """x [M, N] float32 += narrow gelu(wide norm(x)), for a small batch in one launch: programs that
    share rows wait for each other at a barrier instead of being split into two launches.

    wide_w [H, N], narrow_w [N, H]; N and H powers of two. HEADS: heads_bias [N] and heads [HEADS,
    M, N], the results of `attend_by_head`, are first added to x, in order.

    A program computes HIDDEN of the H inner columns of BM rows and their share of the result,
    float32 parts [H / HIDDEN, M, N]. When all shares of its rows are complete it sums N HIDDEN / H
    columns, always in the same order. counters int32, zero before the pass: one for each tile of
    rows from `first_counter` on. TAIL as in `onto_residual`. Grid (H / HIDDEN, ceil(M / BM)), all
    of which must be resident at once.
    """
    announce(CHAINED)
    chunks: tl.constexpr = H // HIDDEN
    share: tl.constexpr = N // chunks
    chunk = tl.program_id(0)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inner, hidden = tl.arange(0, N), chunk * HIDDEN + tl.arange(0, HIDDEN)
    widening = tl.load(wide_w + hidden[None, :] * N + inner[:, None])
    narrowing = tl.load(narrow_w + inner[None, :] * H + hidden[:, None])
    wide_shift = tl.load(wide_bias + hidden)
    mine = chunk * share + tl.arange(0, share)
    narrow_shift = tl.load(narrow_bias + mine)
    there = (rows < M)[:, None]
    wait(CHAINED)
    values = tl.load(x + rows[:, None] * N + inner[None, :], mask=there, other=0.0)
    old = tl.load(x + rows[:, None] * N + mine[None, :], mask=there, other=0.0)
    if HEADS > 0:
        values += tl.load(heads_bias + inner)[None, :]
        old += tl.load(heads_bias + mine)[None, :]
        for head in tl.static_range(HEADS):
            of_head = heads + (head * M + rows)[:, None] * N
            values += tl.load(of_head + inner[None, :], mask=there, other=0.0).to(tl.float32)
            old += tl.load(of_head + mine[None, :], mask=there, other=0.0).to(tl.float32)
    normal = normalised(values, N, N, EPS).to(wide_w.dtype.element_ty)
    activated = product(normal, widening, tl.zeros([BM, HIDDEN], tl.float32)) + wide_shift[None, :]
    activated = 0.5 * activated * (1.0 + erf(activated * 0.7071067811865476))
    part = product(activated.to(narrow_w.dtype.element_ty), narrowing, tl.zeros([BM, N], tl.float32))
    tl.store(parts + (chunk * M + rows)[:, None] * N + inner[None, :], part, mask=there)
    wait_for_programs(counters + first_counter + tl.program_id(1), chunks)
    total = old + narrow_shift[None, :]
    for at in tl.static_range(chunks):
        total += tl.load(
            parts + (at * M + rows)[:, None] * N + mine[None, :], mask=there, other=0.0, cache_modifier=".cg"
        )
    tl.store(x + rows[:, None] * N + mine[None, :], total, mask=there)
    if TAIL:
        keep_tail(total, pool, own, rows, mine, there, page, tail, N, FRAMES, ROWS)
