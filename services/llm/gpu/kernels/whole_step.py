"""A whole decode step of a few rows in one launch: programs that stay on the device and meet at a
barrier between phases.

    enter | heads, attend, out, gate, down of each layer | score | scan | choose

What each phase computes is described where its own kernel is (`products`, `attention`, `sampling`).
Products multiply and add, BN columns of weights at a time, one warp to a column; a row's numbers
depend neither on the number of rows nor on that of programs.
"""

# fmt: off
import triton
import triton.language as tl

from services.llm.gpu.kernels.attention import attend_split
from services.llm.gpu.kernels.products import add_to_residual, scale_of, store_heads
from services.llm.gpu.kernels.resident import arrive, fetch_ahead, wait
from services.llm.gpu.kernels.sampling import choose_row, enter_row, scan_piece

ENTER, HEADS_PHASE, ATTEND, OUT, GATE, DOWN, SCORE, SCAN, CHOOSE = (tl.constexpr(1 << bit) for bit in range(9))
LAYER_PHASES = tl.constexpr(5)


@triton.jit
def _columns(weights, tile, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr):
    """Columns [BN, K] of tile `tile` as a tuple of [BN, CHUNK]; 0 behind N and K."""
    columns = tile * BN + tl.arange(0, BN)
    places = weights + columns[:, None] * K
    parts = ()
    for chunk in tl.static_range((K + CHUNK - 1) // CHUNK):
        at = chunk * CHUNK + tl.arange(0, CHUNK)
        parts = parts + (tl.load(places + at[None, :], mask=(columns < N)[:, None] & (at < K)[None, :], other=0.0),)
    return parts


@triton.jit
def _fetch_columns(weights, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, PROGRAMS: tl.constexpr,
    MEET: tl.constexpr):
    """Begin to read all tiles of this program into the second cache."""
    if MEET:
        SIZE: tl.constexpr = K * weights.dtype.element_ty.primitive_bitwidth // 8
        for tile in range(tl.program_id(0), (N + BN - 1) // BN, PROGRAMS):
            fetch_ahead(weights + tile * (BN * K), tl.minimum(BN, N - tile * BN) * SIZE, MEET)


@triton.jit
def _row_product(parts, x, row, K: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr):
    """x [rows, K], one row of it, times the columns -> float32 [BN]."""
    wide = tl.zeros([BN, CHUNK], tl.float32)
    same = tl.zeros([BN], tl.int32)
    for chunk in tl.static_range((K + CHUNK - 1) // CHUNK):
        at = chunk * CHUNK + tl.arange(0, CHUNK)
        places = x + row * K + same[:, None] + at[None, :]
        if (chunk + 1) * CHUNK <= K:
            numbers = tl.load(places)
        else:
            numbers = tl.load(places, mask=(at < K)[None, :], other=0.0)
        wide += parts[chunk].to(tl.float32) * numbers.to(tl.float32)
    return tl.sum(wide, axis=1)


@triton.jit
def _product(parts, x, BATCH: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr):
    """x [BATCH, K] times the columns -> float32 [BATCH, BN]; BATCH is 1, 2, 4 or 8."""
    r = ()
    for row in tl.static_range(BATCH):
        r = r + (_row_product(parts, x, row, K, BN, CHUNK),)
    if BATCH == 1:
        joined = r[0]
    elif BATCH == 2:
        joined = tl.join(r[0], r[1])
    elif BATCH == 4:
        joined = tl.join(tl.join(r[0], r[2]), tl.join(r[1], r[3]))
    else:
        joined = tl.join(tl.join(tl.join(r[0], r[4]), tl.join(r[2], r[6])),
            tl.join(tl.join(r[1], r[5]), tl.join(r[3], r[7])))
    return tl.trans(tl.reshape(joined, [BN, BATCH]))


@triton.jit
def _add(
    weights, x, residual, rounded, squares, counter, arrivals,
    BATCH: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr,
    PROGRAMS: tl.constexpr, MEET: tl.constexpr,
):
    """As `products.add_product`."""
    TILES: tl.constexpr = (N + BN - 1) // BN
    rows = tl.arange(0, BATCH)
    parts = _columns(weights, tl.program_id(0), N, K, BN, CHUNK)
    wait(counter, arrivals, MEET)
    for turn in tl.static_range((TILES + PROGRAMS - 1) // PROGRAMS):
        tile = tl.program_id(0) + turn * PROGRAMS
        if turn > 0:
            parts = _columns(weights, tile, N, K, BN, CHUNK)
        if tile < TILES:
            total = _product(parts, x, BATCH, K, BN, CHUNK)
            columns = tile * BN + tl.arange(0, BN)
            mask = (rows >= 0)[:, None] & (columns < N)[None, :]
            add_to_residual(residual, rounded, squares, tile, total, rows, columns, mask, BATCH, N)
    arrive(counter, MEET)


@triton.jit
def _heads(
    weights, bias, x, squares, cosines, sines, row_position, row_place, queries, cache, counter, arrivals, epsilon,
    BATCH: tl.constexpr, HIDDEN: tl.constexpr, QUERY: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, TILES: tl.constexpr, TILES_PADDED: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr,
    PROGRAMS: tl.constexpr, MEET: tl.constexpr,
):
    """As `products.project_heads`."""
    WIDTH: tl.constexpr = QUERY + 2 * KEYS
    TURNS: tl.constexpr = ((WIDTH + BN - 1) // BN + PROGRAMS - 1) // PROGRAMS
    rows = tl.arange(0, BATCH)
    present = rows >= 0
    parts = _columns(weights, tl.program_id(0), WIDTH, HIDDEN, BN, CHUNK)
    wait(counter, arrivals, MEET)
    for turn in tl.static_range(TURNS):
        tile = tl.program_id(0) + turn * PROGRAMS
        if turn > 0:
            parts = _columns(weights, tile, WIDTH, HIDDEN, BN, CHUNK)
        if tile * BN < WIDTH:
            columns = tile * BN + tl.arange(0, BN)
            shift = tl.load(bias + columns, mask=columns < WIDTH, other=0.0)
            scale = scale_of(squares, rows, present, BATCH, epsilon, HIDDEN, TILES, TILES_PADDED)
            total = _product(parts, x, BATCH, HIDDEN, BN, CHUNK) * scale[:, None] + shift[None, :]
            store_heads(total, rows, present, tile * BN, row_position, row_place, cosines, sines, queries, cache, QUERY,
                KEYS, D, PAGE, BATCH, BN)
    arrive(counter, MEET)


@triton.jit
def _attend(
    queries, cache, row_pages, row_length, partial, partial_stats, arrived, out, counter, arrivals, scale, most_pages,
    BATCH: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    G: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr, PROGRAMS: tl.constexpr, MEET: tl.constexpr,
):
    """As `attention.attend_row`; splits that rows have are dealt out before those that none has."""
    PAIRS: tl.constexpr = BATCH * KEY_HEADS
    wait(counter, arrivals, MEET)
    for item in range(tl.program_id(0), PAIRS * SPLITS, PROGRAMS):
        pair = item % PAIRS
        attend_split(pair // KEY_HEADS, pair % KEY_HEADS, item // PAIRS, queries, cache, row_pages, row_length, partial,
            partial_stats, arrived, out, scale, most_pages, HEADS, KEY_HEADS, D, PAGE, G, SPLITS, PRECISION, 0)
    arrive(counter, MEET)


@triton.jit
def _gate(
    weights, x, squares, out, counter, arrivals, epsilon,
    BATCH: tl.constexpr, MLP: tl.constexpr, HIDDEN: tl.constexpr, TILES: tl.constexpr, TILES_PADDED: tl.constexpr,
    BN: tl.constexpr, CHUNK: tl.constexpr, PROGRAMS: tl.constexpr, MEET: tl.constexpr,
):
    """As `products.gated_product`; the weights of the next tile are loaded while one is used."""
    TURNS: tl.constexpr = ((MLP + BN - 1) // BN + PROGRAMS - 1) // PROGRAMS
    rows = tl.arange(0, BATCH)
    ups = weights + MLP * HIDDEN
    gate_parts = _columns(weights, tl.program_id(0), MLP, HIDDEN, BN, CHUNK)
    up_parts = _columns(ups, tl.program_id(0), MLP, HIDDEN, BN, CHUNK)
    wait(counter, arrivals, MEET)
    scale = scale_of(squares, rows, rows >= 0, BATCH, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None]
    for turn in tl.static_range(TURNS):
        tile = tl.program_id(0) + turn * PROGRAMS
        for_gate, for_up = gate_parts, up_parts
        if turn + 1 < TURNS:
            gate_parts = _columns(weights, tile + PROGRAMS, MLP, HIDDEN, BN, CHUNK)
            up_parts = _columns(ups, tile + PROGRAMS, MLP, HIDDEN, BN, CHUNK)
        if tile * BN < MLP:
            gate = _product(for_gate, x, BATCH, HIDDEN, BN, CHUNK) * scale
            up = _product(for_up, x, BATCH, HIDDEN, BN, CHUNK) * scale
            result = gate / (1.0 + tl.exp(-gate)) * up
            columns = tile * BN + tl.arange(0, BN)
            tl.store(out + rows[:, None] * MLP + columns[None, :], result.to(out.dtype.element_ty),
                mask=(rows >= 0)[:, None] & (columns < MLP)[None, :])
    arrive(counter, MEET)


@triton.jit
def _score(
    weights, bias, x, squares, logits, counter, arrivals, epsilon,
    BATCH: tl.constexpr, VOCABULARY: tl.constexpr, HIDDEN: tl.constexpr, TILES: tl.constexpr,
    TILES_PADDED: tl.constexpr, BN: tl.constexpr, CHUNK: tl.constexpr, PROGRAMS: tl.constexpr, MEET: tl.constexpr,
):
    """As `products.score`."""
    TURNS: tl.constexpr = ((VOCABULARY + BN - 1) // BN + PROGRAMS - 1) // PROGRAMS
    rows = tl.arange(0, BATCH)
    parts = _columns(weights, tl.program_id(0), VOCABULARY, HIDDEN, BN, CHUNK)
    wait(counter, arrivals, MEET)
    scale = scale_of(squares, rows, rows >= 0, BATCH, epsilon, HIDDEN, TILES, TILES_PADDED)[:, None]
    for turn in range(TURNS):
        tile = tl.program_id(0) + turn * PROGRAMS
        if tile * BN < VOCABULARY:
            if turn > 0:
                parts = _columns(weights, tile, VOCABULARY, HIDDEN, BN, CHUNK)
            columns = tile * BN + tl.arange(0, BN)
            shift = tl.load(bias + columns, mask=columns < VOCABULARY, other=0.0)
            total = _product(parts, x, BATCH, HIDDEN, BN, CHUNK) * scale + shift[None, :]
            tl.store(logits + rows[:, None] * VOCABULARY + columns[None, :], total,
                mask=(rows >= 0)[:, None] & (columns < VOCABULARY)[None, :])
    arrive(counter, MEET)


@triton.jit
def whole_step(
    state, pages, row_slot, table, position, place, length, row_pages, residual, rounded, squares_out, squares_down,
    qkv, bias, out_weights, gate_up, down, head, head_bias, cosines, sines, queries, cache, partial, partial_stats,
    arrived, attended, gated, logits, best, sums, peaks, finite, history, replay, decisions, counters,
    first_layer, last_layer, cache_stride, epsilon, attention_scale, top_p, repeats, most_pages, most_replayed,
    first_speech,
    PHASES: tl.constexpr, MEET: tl.constexpr, PROGRAMS: tl.constexpr, BATCH: tl.constexpr, BN: tl.constexpr,
    CHUNK: tl.constexpr, HEAD_CHUNK: tl.constexpr,
    HIDDEN: tl.constexpr, HIDDEN_PADDED: tl.constexpr, PAGES_PADDED: tl.constexpr, MLP: tl.constexpr,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, G: tl.constexpr,
    SPLITS: tl.constexpr, PRECISION: tl.constexpr, TILES: tl.constexpr, TILES_PADDED: tl.constexpr,
    VOCABULARY: tl.constexpr, TOKENS: tl.constexpr, END: tl.constexpr, FILL: tl.constexpr, REFERENCE: tl.constexpr,
    PIECES: tl.constexpr, PIECES_PADDED: tl.constexpr, PIECE: tl.constexpr, TOP: tl.constexpr, TOP_K: tl.constexpr,
    WINDOW: tl.constexpr, RING: tl.constexpr,
):
    """PHASES: which phases run; all of them in one launch with MEET, else one in a launch, and the
    layers from first_layer up to last_layer. Grid (PROGRAMS,), with MEET all on the device at once.

    counters: int32 [2], 0 before and after. Weights of layers are stacked: qkv [layers, QUERY + 2
    KEYS, HIDDEN] and so on. cache_stride: numbers of one layer of the cache. CHUNK, HEAD_CHUNK:
    numbers that a warp loads at once, 16 bytes a thread.
    """
    QUERY: tl.constexpr = HEADS * D
    KEYS: tl.constexpr = KEY_HEADS * D
    program = tl.program_id(0)
    passed = 0
    if ENTER & PHASES:
        _fetch_columns(qkv, QUERY + 2 * KEYS, HIDDEN, BN, PROGRAMS, MEET)
        _fetch_columns(out_weights, HIDDEN, QUERY, BN, PROGRAMS, MEET)
        for row in range(program, BATCH, PROGRAMS):
            enter_row(row, state, pages, row_slot, table, position, place, length, row_pages, residual, rounded,
                squares_down, most_pages, BATCH, HIDDEN, HIDDEN_PADDED, PAGES_PADDED, TILES, TILES_PADDED, PAGE)
        arrive(counters, MEET)
    for index in range(first_layer, last_layer):
        layer = tl.zeros([], tl.int64) + index
        of_layer = cache + layer * cache_stride
        gate_weights = gate_up + layer * (2 * MLP * HIDDEN)
        down_weights = down + layer * (MLP * HIDDEN)
        passed += PROGRAMS
        if HEADS_PHASE & PHASES:
            _fetch_columns(gate_weights, MLP, HIDDEN, BN, PROGRAMS, MEET)
            _fetch_columns(gate_weights + MLP * HIDDEN, MLP, HIDDEN, BN, PROGRAMS, MEET)
            _heads(qkv + layer * ((QUERY + 2 * KEYS) * HIDDEN), bias + layer * (QUERY + 2 * KEYS), rounded, squares_down,
                cosines, sines, position, place, queries, of_layer, counters, passed, epsilon, BATCH, HIDDEN, QUERY,
                KEYS, D, PAGE, TILES, TILES_PADDED, BN, CHUNK, PROGRAMS, MEET)
        if ATTEND & PHASES:
            _attend(queries, of_layer, row_pages, length, partial, partial_stats, arrived, attended, counters,
                passed + PROGRAMS, attention_scale, most_pages, BATCH, HEADS, KEY_HEADS, D, PAGE, G, SPLITS, PRECISION,
                PROGRAMS, MEET)
        if OUT & PHASES:
            _fetch_columns(down_weights, HIDDEN, MLP, BN, PROGRAMS, MEET)
            _add(out_weights + layer * (HIDDEN * QUERY), attended, residual, rounded, squares_out, counters,
                passed + 2 * PROGRAMS, BATCH, HIDDEN, QUERY, BN, CHUNK, PROGRAMS, MEET)
        if GATE & PHASES:
            if index + 1 < last_layer:
                _fetch_columns(qkv + (layer + 1) * ((QUERY + 2 * KEYS) * HIDDEN), QUERY + 2 * KEYS, HIDDEN, BN, PROGRAMS,
                    MEET)
                _fetch_columns(out_weights + (layer + 1) * (HIDDEN * QUERY), HIDDEN, QUERY, BN, PROGRAMS, MEET)
            else:
                _fetch_columns(head, VOCABULARY, HIDDEN, BN, PROGRAMS, MEET)
            _gate(gate_weights, rounded, squares_out, gated, counters, passed + 3 * PROGRAMS, epsilon, BATCH, MLP,
                HIDDEN, TILES, TILES_PADDED, BN, CHUNK, PROGRAMS, MEET)
        if DOWN & PHASES:
            _add(down_weights, gated, residual, rounded, squares_down, counters, passed + 4 * PROGRAMS, BATCH, HIDDEN,
                MLP, BN, CHUNK, PROGRAMS, MEET)
        passed += 4 * PROGRAMS
    if SCORE & PHASES:
        _score(head, head_bias, residual, squares_down, logits, counters, passed + PROGRAMS, epsilon, BATCH, VOCABULARY,
            HIDDEN, TILES, TILES_PADDED, BN, HEAD_CHUNK, PROGRAMS, MEET)
    if SCAN & PHASES:
        wait(counters, passed + 2 * PROGRAMS, MEET)
        for item in range(program, BATCH * PIECES, PROGRAMS):
            scan_piece(item // PIECES, item % PIECES, logits, state, row_slot, best, sums, peaks, finite, VOCABULARY,
                TOKENS, END, FILL, REFERENCE, PIECES, PIECE, TOP)
        arrive(counters, MEET)
    if CHOOSE & PHASES:
        if program < BATCH:
            wait(counters, passed + 3 * PROGRAMS, MEET)
            for row in range(program, BATCH, PROGRAMS):
                choose_row(row, logits, state, row_slot, best, sums, peaks, finite, history, replay, decisions, top_p,
                    repeats, most_replayed, first_speech, VOCABULARY, TOKENS, END, FILL, REFERENCE, PIECES,
                    PIECES_PADDED, PIECE, TOP, TOP_K, WINDOW, RING)
    if MEET:
        # The last to leave clears both counters for the next launch: nobody waits any more.
        if tl.atomic_add(counters + 1, 1, sem="acq_rel") == PROGRAMS - 1:
            tl.store(counters, 0)
            tl.store(counters + 1, 0)
