"""The four products of a decoder block and the head, each fused with the operations before and
after it. For B rows, one per sequence:

    project_heads   norm, q k v, bias, rotation, k and v into the cache     [heads' width, hidden]
    add_product     product added to the residual stream (attention, MLP)   [hidden, K]
    gated_product   norm, gate and up, silu(gate) * up                      [2 MLP, hidden]
    score           norm, head, bias                                        [ids, hidden] float32

The last column is the shape of the weights. Each weight is read once for every BM rows, so for B <=
BM a step reads little else. The weight of a norm is folded into the matrix after it (see
`packing`); the norm itself scales the result by the sum of squares that the previous kernel wrote
in parts: `squares` float32 [TILES, B], one part for each tile of columns. Products accumulate in
float32. SUM: multiply and add, one row per program; otherwise the matrix units, with rows padded to
16 or more. ONCE: BK spans all of a program's K, and its weights are loaded before it waits.
"""

# fmt: off
import triton
import triton.language as tl

from services.llm.gpu.kernels.dependent_launch import launch_dependents, wait_for_inputs


@triton.jit
def _weights(weights, columns, within, at, end, K: tl.constexpr):
    return tl.load(weights + columns[:, None] * K + at[None, :], mask=within[:, None] & (at < end)[None, :], other=0.0)


@triton.jit
def _row(x, at, end, K: tl.constexpr):
    return tl.load(x + tl.program_id(1) * K + at, mask=at < end, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _scale(squares, rows, present, batch, epsilon, HIDDEN: tl.constexpr, TILES: tl.constexpr,
    TILES_PADDED: tl.constexpr):
    """1 / root mean square of each row, [BM]."""
    tiles = tl.arange(0, TILES_PADDED)
    parts = tl.load(squares + tiles[:, None] * batch + rows[None, :], mask=(tiles < TILES)[:, None] & present[None, :],
        other=0.0)
    return tl.rsqrt(tl.sum(parts, axis=0) / HIDDEN + epsilon)


@triton.jit
def _product(
    x, rows, present, weights, columns, within, begin, end, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
    SUM: tl.constexpr, ONCE: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):
    """x [rows, K] times weights [columns, K] transposed over k in [begin, end) -> float32 [BM, BN].
    Waits for x.
    """
    if SUM:
        at = begin + tl.arange(0, BK)
        w = _weights(weights, columns, within, at, end, K)
        wait_for_inputs(PDL)
        wide = w.to(tl.float32) * _row(x, at, end, K)
        for start in range(begin + BK, end, BK):
            at = start + tl.arange(0, BK)
            wide += _weights(weights, columns, within, at, end, K).to(tl.float32) * _row(x, at, end, K)
        total = tl.sum(wide, axis=1)[None, :]
    elif ONCE:
        at = begin + tl.arange(0, BK)
        w = _weights(weights, columns, within, at, end, K)
        wait_for_inputs(PDL)
        part = tl.load(x + rows[:, None] * K + at[None, :], mask=present[:, None] & (at < end)[None, :], other=0.0)
        total = tl.dot(part, tl.trans(w), input_precision=PRECISION)
    else:
        wait_for_inputs(PDL)
        total = tl.zeros([BM, BN], tl.float32)
        for start in range(begin, end, BK):
            at = start + tl.arange(0, BK)
            w = tl.load(weights + columns[:, None] * K + at[None, :], mask=within[:, None], other=0.0)
            part = tl.load(x + rows[:, None] * K + at[None, :], mask=present[:, None], other=0.0)
            total = tl.dot(part, tl.trans(w), total, input_precision=PRECISION)
    return total


@triton.jit(do_not_specialize=["batch"])
def project_heads(
    x, squares, weights, bias, cosines, sines, row_position, row_place, queries, cache, batch, epsilon,
    HIDDEN: tl.constexpr, QUERY: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    TILES: tl.constexpr,
    TILES_PADDED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr,
    ONCE: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):
    """x [B, HIDDEN] -> queries [B, QUERY], rotated; keys (rotated) and values into the cache of
    this layer, [pages, KEYS / D, 2, PAGE, D].

    weights [QUERY + 2 KEYS, HIDDEN], bias float32; in q and k the two numbers of a rotary pair are
    adjacent. cosines, sines: float32 [positions, D / 2]. row_position, row_place: int32 [B],
    position of a row in its sequence and in the cache (page * PAGE + offset).
    """
    launch_dependents(PDL, 1)
    WIDTH: tl.constexpr = QUERY + 2 * KEYS
    first = tl.program_id(0) * BN
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = first + tl.arange(0, BN)
    present, within = rows < batch, columns < WIDTH
    shift = tl.load(bias + columns, mask=within, other=0.0)
    total = _product(x, rows, present, weights, columns, within, 0, HIDDEN, HIDDEN, BM, BN, BK, SUM, ONCE, PRECISION,
        PDL)
    launch_dependents(PDL, 2)
    position = tl.load(row_position + rows, mask=present, other=0)
    place = tl.load(row_place + rows, mask=present, other=0)
    pairs = (first // 2 + tl.arange(0, BN // 2)) % (D // 2)
    cosine = tl.load(cosines + position[:, None] * (D // 2) + pairs[None, :])
    sine = tl.load(sines + position[:, None] * (D // 2) + pairs[None, :])
    total = total * _scale(squares, rows, present, batch, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None] + shift[None,
        :]
    one, other = tl.split(tl.reshape(total, [BM, BN // 2, 2]))
    rotated = tl.reshape(tl.join(one * cosine - other * sine, other * cosine + one * sine), [BM, BN])
    result = tl.where((columns < QUERY + KEYS)[None, :], rotated, total)
    to_queries = present[:, None] & (columns < QUERY)[None, :]
    tl.store(queries + rows[:, None] * QUERY + columns[None, :], result.to(queries.dtype.element_ty), mask=to_queries)
    behind = tl.maximum(columns - QUERY, 0)
    is_value = behind // KEYS
    head, d = (behind % KEYS) // D, behind % D
    page = (place // PAGE).to(tl.int64)
    block = (page[:, None] * (KEYS // D) + head[None, :]) * 2 + is_value[None, :]
    at = (block * PAGE + (place % PAGE)[:, None]) * D + d[None, :]
    to_cache = present[:, None] & ((columns >= QUERY) & within)[None, :]
    tl.store(cache + at, result.to(cache.dtype.element_ty), mask=to_cache)


@triton.jit
def _add_to_residual(residual, rounded, squares, total, rows, columns, mask, batch, N: tl.constexpr):
    """Add `total` to the residual stream, and write its rounded copy and this tile's part of the
    sums of squares.
    """
    at = rows[:, None] * N + columns[None, :]
    total += tl.load(residual + at, mask=mask, other=0.0)
    tl.store(residual + at, total, mask=mask)
    tl.store(rounded + at, total.to(rounded.dtype.element_ty), mask=mask)
    tl.store(squares + tl.program_id(0) * batch + rows, tl.sum(total * total, axis=1), mask=rows < batch)


@triton.jit(do_not_specialize=["batch"])
def add_product(
    x, weights, residual, rounded, squares, partial, arrived, batch,
    N: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr, STEPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, ONCE: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    """residual float32 [B, N] += x [B, K] times weights [N, K] transposed; rounded [B, N] is its
    copy in the weights' type; squares float32 [tiles of N, B] the sum of squares of each tile's
    columns.

    SPLIT programs share the K of one tile, STEPS * BK columns each; the program that finishes last
    adds their parts in order, so the result does not depend on which one is last. partial: float32
    [tiles, SPLIT, BM, BN]; arrived: int32 [tiles], 0 before and after.
    """
    launch_dependents(PDL, 1)
    split = tl.program_id(2)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    present, within = rows < batch, columns < N
    begin = split * STEPS * BK
    end = tl.minimum(begin + STEPS * BK, K)
    total = _product(x, rows, present, weights, columns, within, begin, end, K, BM, BN, BK, SUM, ONCE, PRECISION, PDL)
    launch_dependents(PDL, 2)
    mask = present[:, None] & within[None, :]
    if SPLIT == 1:
        _add_to_residual(residual, rounded, squares, total, rows, columns, mask, batch, N)
    else:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        parts = partial + tile * (SPLIT * BM * BN) + inside
        tl.store(parts + split * (BM * BN), total)
        tl.debug_barrier()
        if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLIT - 1:
            total = tl.zeros([BM, BN], tl.float32)
            for other in tl.static_range(SPLIT):
                total += tl.load(parts + other * (BM * BN), cache_modifier=".cg")
            _add_to_residual(residual, rounded, squares, total, rows, columns, mask, batch, N)
            tl.store(arrived + tile, 0)


@triton.jit(do_not_specialize=["batch"])
def gated_product(
    x, squares, weights, out, batch, epsilon,
    MLP: tl.constexpr, HIDDEN: tl.constexpr, TILES: tl.constexpr, TILES_PADDED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, ONCE: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    """x [B, HIDDEN] -> out [B, MLP] = silu(gate) * up, of the normed x. weights [2 MLP, HIDDEN]:
    the gate's rows, then up's.
    """
    launch_dependents(PDL, 1)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    present, within = rows < batch, columns < MLP
    if SUM:
        at = tl.arange(0, BK)
        for_gate = _weights(weights, columns, within, at, HIDDEN, HIDDEN)
        for_up = _weights(weights + MLP * HIDDEN, columns, within, at, HIDDEN, HIDDEN)
        wait_for_inputs(PDL)
        scale = _scale(squares, rows, present, batch, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None]
        part = _row(x, at, HIDDEN, HIDDEN)
        wide_gate = for_gate.to(tl.float32) * part
        wide_up = for_up.to(tl.float32) * part
        for start in range(BK, HIDDEN, BK):
            at = start + tl.arange(0, BK)
            part = _row(x, at, HIDDEN, HIDDEN)
            wide_gate += _weights(weights, columns, within, at, HIDDEN, HIDDEN).to(tl.float32) * part
            wide_up += _weights(weights + MLP * HIDDEN, columns, within, at, HIDDEN, HIDDEN).to(tl.float32) * part
        gate = tl.sum(wide_gate, axis=1)[None, :]
        up = tl.sum(wide_up, axis=1)[None, :]
    elif ONCE:
        at = tl.arange(0, BK)
        for_gate = _weights(weights, columns, within, at, HIDDEN, HIDDEN)
        for_up = _weights(weights + MLP * HIDDEN, columns, within, at, HIDDEN, HIDDEN)
        wait_for_inputs(PDL)
        scale = _scale(squares, rows, present, batch, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None]
        part = tl.load(x + rows[:, None] * HIDDEN + at[None, :], mask=present[:, None] & (at < HIDDEN)[None, :],
            other=0.0)
        gate = tl.dot(part, tl.trans(for_gate), input_precision=PRECISION)
        up = tl.dot(part, tl.trans(for_up), input_precision=PRECISION)
    else:
        wait_for_inputs(PDL)
        scale = _scale(squares, rows, present, batch, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None]
        gate = tl.zeros([BM, BN], tl.float32)
        up = tl.zeros([BM, BN], tl.float32)
        for start in range(0, HIDDEN, BK):
            at = start + tl.arange(0, BK)
            places = weights + columns[:, None] * HIDDEN + at[None, :]
            for_gate = tl.load(places, mask=within[:, None], other=0.0)
            for_up = tl.load(places + MLP * HIDDEN, mask=within[:, None], other=0.0)
            part = tl.load(x + rows[:, None] * HIDDEN + at[None, :], mask=present[:, None], other=0.0)
            gate = tl.dot(part, tl.trans(for_gate), gate, input_precision=PRECISION)
            up = tl.dot(part, tl.trans(for_up), up, input_precision=PRECISION)
    launch_dependents(PDL, 2)
    gate, up = gate * scale, up * scale
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + rows[:, None] * MLP + columns[None, :], result.to(out.dtype.element_ty),
    mask=present[:, None] & within[None, :])


@triton.jit(do_not_specialize=["batch"])
def score(
    x, squares, weights, bias, logits, batch, epsilon,
    VOCABULARY: tl.constexpr, HIDDEN: tl.constexpr, TILES: tl.constexpr, TILES_PADDED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, ONCE: tl.constexpr,
    PRECISION: tl.constexpr,
    PDL: tl.constexpr,
):
    """x float32 [B, HIDDEN] -> logits float32 [B, VOCABULARY] after the last norm; weights
    [VOCABULARY, HIDDEN] and bias float32.
    """
    launch_dependents(PDL, 1)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    present, within = rows < batch, columns < VOCABULARY
    shift = tl.load(bias + columns, mask=within, other=0.0)
    total = _product(x, rows, present, weights, columns, within, 0, HIDDEN, HIDDEN, BM, BN, BK, SUM, ONCE, PRECISION,
        PDL)
    launch_dependents(PDL, 2)
    total = total * _scale(squares, rows, present, batch, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None] + shift[None,
        :]
    tl.store(logits + rows[:, None] * VOCABULARY + columns[None, :], total, mask=present[:, None] & within[None, :])
