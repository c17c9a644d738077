"""The four products of a decoder block and the head, each fused with what stands before and behind it. For B rows, one per sequence:

    project_heads   norm, q k v, bias, rotary turn, k and v into the cache     reads [heads' width, hidden] weights
    add_product     product added to the residual stream (attention's, MLP's)  reads [hidden, K]
    gated_product   norm, gate and up, silu(gate) * up                         reads [2 MLP, hidden]
    score           norm, head, bias                                           reads [6564, hidden] float32

Each weight is read once for every BM rows, so for B <= BM a step moves the weights' bytes and little else. The weight of a norm is folded
into the matrix behind it (see `packing`); the norm itself scales the result, its sum of squares is taken on the way. Products accumulate
in float32. SUM: multiply and add for one row; otherwise the matrix units with B padded to 16 rows.
"""

import triton
import triton.language as tl

from services.llm.gpu.device import fetch_ahead, start_next, wait_for_inputs


@triton.jit
def _product(
    x, rows, present, weights, columns, within, begin, end,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, SQUARES: tl.constexpr, PRECISION: tl.constexpr,
):
    """x [rows, K] times weights [columns, K] transposed over k in [begin, end) -> float32 [BM, BN], and sums of squares of x [BM]."""
    squares = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, BN], tl.float32)
    if SUM:
        wide = tl.zeros([BN, BK], tl.float32)
        square = tl.zeros([BK], tl.float32)
        for start in range(begin, end, BK):
            at = start + tl.arange(0, BK)
            w = tl.load(weights + columns[:, None] * K + at[None, :], mask=within[:, None] & (at < end)[None, :], other=0.0)
            part = tl.load(x + at, mask=at < end, other=0.0).to(tl.float32)
            wide += w.to(tl.float32) * part[None, :]
            if SQUARES:
                square += part * part
        total += tl.sum(wide, axis=1)[None, :]
        if SQUARES:
            squares += tl.sum(square, axis=0)
    else:
        for start in range(begin, end, BK):
            at = start + tl.arange(0, BK)
            w = tl.load(weights + columns[:, None] * K + at[None, :], mask=within[:, None], other=0.0)
            part = tl.load(x + rows[:, None] * K + at[None, :], mask=present[:, None], other=0.0)
            if SQUARES:
                wide_part = part.to(tl.float32)
                squares += tl.sum(wide_part * wide_part, axis=1)
            total = tl.dot(part, tl.trans(w), total, input_precision=PRECISION)
    return total, squares


@triton.jit
def project_heads(
    x, weights, bias, cosines, sines, row_position, row_place, queries, cache, batch, epsilon,
    HIDDEN: tl.constexpr, QUERY: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):
    """x [B, HIDDEN] -> queries [B, QUERY], turned; keys (turned) and values into the cache of this layer, [pages, KEYS / D, 2, PAGE, D].

    weights [QUERY + 2 KEYS, HIDDEN], bias float32; in q and k the two numbers of a rotary pair stand side by side. cosines, sines: float32
    [positions, D / 2]. row_position, row_place: int32 [B], where a row stands in its sequence and in the cache (page * PAGE + offset).
    """
    start_next(PDL)
    WIDTH: tl.constexpr = QUERY + 2 * KEYS
    first = tl.program_id(0) * BN
    fetch_ahead(weights, first, 0, BN, HIDDEN, LINES, WIDTH, PDL)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = first + tl.arange(0, BN)
    present, within = rows < batch, columns < WIDTH
    shift = tl.load(bias + columns, mask=within, other=0.0)
    wait_for_inputs(PDL)
    total, squares = _product(x, rows, present, weights, columns, within, 0, HIDDEN, HIDDEN, BM, BN, BK, SUM, True, PRECISION)
    total = total * tl.rsqrt(squares / HIDDEN + epsilon)[:, None] + shift[None, :]
    position = tl.load(row_position + rows, mask=present, other=0)
    pairs = (first // 2 + tl.arange(0, BN // 2)) % (D // 2)
    cosine = tl.load(cosines + position[:, None] * (D // 2) + pairs[None, :])
    sine = tl.load(sines + position[:, None] * (D // 2) + pairs[None, :])
    one, other = tl.split(tl.reshape(total, [BM, BN // 2, 2]))
    turned = tl.reshape(tl.join(one * cosine - other * sine, other * cosine + one * sine), [BM, BN])
    result = tl.where((columns < QUERY + KEYS)[None, :], turned, total)
    to_queries = present[:, None] & (columns < QUERY)[None, :]
    tl.store(queries + rows[:, None] * QUERY + columns[None, :], result.to(queries.dtype.element_ty), mask=to_queries)
    place = tl.load(row_place + rows, mask=present, other=0)
    behind = tl.maximum(columns - QUERY, 0)
    is_value = behind // KEYS
    head, d = (behind % KEYS) // D, behind % D
    page = (place // PAGE).to(tl.int64)
    block = (page[:, None] * (KEYS // D) + head[None, :]) * 2 + is_value[None, :]
    at = (block * PAGE + (place % PAGE)[:, None]) * D + d[None, :]
    to_cache = present[:, None] & ((columns >= QUERY) & within)[None, :]
    tl.store(cache + at, result.to(cache.dtype.element_ty), mask=to_cache)


@triton.jit
def add_product(
    x, weights, residual, rounded, partial, arrived, batch,
    N: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr, STEPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):
    """residual float32 [B, N] += x [B, K] times weights [N, K] transposed; rounded [B, N] is its copy in the weights' type.

    SPLIT programs share the K of one tile, STEPS * BK columns each; the one that arrives last adds their parts in order, so the result does
    not depend on who is last. partial: float32 [tiles, SPLIT, BM, BN]; arrived: int32 [tiles], 0 before and after.
    """
    start_next(PDL)
    first = tl.program_id(0) * BN
    split = tl.program_id(2)
    fetch_ahead(weights, first, split * STEPS * BK, BN, K, LINES, N, PDL)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = first + tl.arange(0, BN)
    present, within = rows < batch, columns < N
    wait_for_inputs(PDL)
    begin = split * STEPS * BK
    end = tl.minimum(begin + STEPS * BK, K)
    total, _ = _product(x, rows, present, weights, columns, within, begin, end, K, BM, BN, BK, SUM, False, PRECISION)
    at = rows[:, None] * N + columns[None, :]
    mask = present[:, None] & within[None, :]
    if SPLIT == 1:
        total += tl.load(residual + at, mask=mask, other=0.0)
        tl.store(residual + at, total, mask=mask)
        tl.store(rounded + at, total.to(rounded.dtype.element_ty), mask=mask)
    else:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        parts = partial + tile * (SPLIT * BM * BN) + inside
        tl.store(parts + split * (BM * BN), total)
        tl.debug_barrier()
        if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLIT - 1:
            total = tl.load(residual + at, mask=mask, other=0.0)
            for other in tl.static_range(SPLIT):
                total += tl.load(parts + other * (BM * BN), cache_modifier=".cg")
            tl.store(residual + at, total, mask=mask)
            tl.store(rounded + at, total.to(rounded.dtype.element_ty), mask=mask)
            tl.store(arrived + tile, 0)


@triton.jit
def gated_product(
    x, weights, out, batch, epsilon,
    MLP: tl.constexpr, HIDDEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):
    """x [B, HIDDEN] -> out [B, MLP] = silu(gate) * up, of the normed x. weights [2 MLP, HIDDEN]: the gate's rows, then up's."""
    start_next(PDL)
    first = tl.program_id(0) * BN
    fetch_ahead(weights, first, 0, BN, HIDDEN, LINES, MLP, PDL)
    fetch_ahead(weights, first + MLP, 0, BN, HIDDEN, LINES, 2 * MLP, PDL)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = first + tl.arange(0, BN)
    present, within = rows < batch, columns < MLP
    wait_for_inputs(PDL)
    squares = tl.zeros([BM], tl.float32)
    gate = tl.zeros([BM, BN], tl.float32)
    up = tl.zeros([BM, BN], tl.float32)
    if SUM:
        wide_gate = tl.zeros([BN, BK], tl.float32)
        wide_up = tl.zeros([BN, BK], tl.float32)
        square = tl.zeros([BK], tl.float32)
        for start in range(0, HIDDEN, BK):
            at = start + tl.arange(0, BK)
            places = weights + columns[:, None] * HIDDEN + at[None, :]
            mask = within[:, None] & (at < HIDDEN)[None, :]
            for_gate = tl.load(places, mask=mask, other=0.0)
            for_up = tl.load(places + MLP * HIDDEN, mask=mask, other=0.0)
            part = tl.load(x + at, mask=at < HIDDEN, other=0.0).to(tl.float32)
            wide_gate += for_gate.to(tl.float32) * part[None, :]
            wide_up += for_up.to(tl.float32) * part[None, :]
            square += part * part
        gate += tl.sum(wide_gate, axis=1)[None, :]
        up += tl.sum(wide_up, axis=1)[None, :]
        squares += tl.sum(square, axis=0)
    else:
        for start in range(0, HIDDEN, BK):
            at = start + tl.arange(0, BK)
            places = weights + columns[:, None] * HIDDEN + at[None, :]
            for_gate = tl.load(places, mask=within[:, None], other=0.0)
            for_up = tl.load(places + MLP * HIDDEN, mask=within[:, None], other=0.0)
            part = tl.load(x + rows[:, None] * HIDDEN + at[None, :], mask=present[:, None], other=0.0)
            wide_part = part.to(tl.float32)
            squares += tl.sum(wide_part * wide_part, axis=1)
            gate = tl.dot(part, tl.trans(for_gate), gate, input_precision=PRECISION)
            up = tl.dot(part, tl.trans(for_up), up, input_precision=PRECISION)
    scale = tl.rsqrt(squares / HIDDEN + epsilon)[:, None]
    gate, up = gate * scale, up * scale
    result = gate / (1.0 + tl.exp(-gate)) * up
    at = rows[:, None] * MLP + columns[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=present[:, None] & within[None, :])


@triton.jit
def score(
    x, weights, bias, logits, batch, epsilon,
    VOCABULARY: tl.constexpr, HIDDEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):
    """x float32 [B, HIDDEN] -> logits float32 [B, VOCABULARY] behind the last norm; weights [VOCABULARY, HIDDEN] and bias float32."""
    start_next(PDL)
    first = tl.program_id(0) * BN
    fetch_ahead(weights, first, 0, BN, HIDDEN, LINES, VOCABULARY, PDL)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = first + tl.arange(0, BN)
    present, within = rows < batch, columns < VOCABULARY
    shift = tl.load(bias + columns, mask=within, other=0.0)
    wait_for_inputs(PDL)
    total, squares = _product(x, rows, present, weights, columns, within, 0, HIDDEN, HIDDEN, BM, BN, BK, SUM, True, PRECISION)
    total = total * tl.rsqrt(squares / HIDDEN + epsilon)[:, None] + shift[None, :]
    tl.store(logits + rows[:, None] * VOCABULARY + columns[None, :], total, mask=present[:, None] & within[None, :])
