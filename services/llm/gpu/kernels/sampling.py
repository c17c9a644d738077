"""The sampler of `services.llm.generation.sampling` on the device: the same choices from the same
float32 scores, with float64 arithmetic.

`scan` reduces 512 ids at a time to the best of them in order, the sum of their weights, and whether
all scores are finite. `choose` combines the pieces of each row, draws, and updates the
sequence's row of the state table. Adding a constant to all scores changes nothing, so scores may be
logits.

`enter`, the first kernel of a step, reads the decision of the previous one from that row: the
position, and the input to embed.
"""

# fmt: off
import triton
import triton.language as tl

from services.llm.gpu.kernels.dependent_launch import launch_dependents, wait_for_inputs
from services.llm.gpu.slots import COLUMNS, NON_FINITE, NOTHING, Column, Flag

(
    LENGTH, INPUT, ACTIVE, DECISIONS, TOKEN_COUNT, SHORTEST, LONGEST, FLAGS, FILL_AT, REPLAY, SEED_LOW, SEED_HIGH,
    SENTENCE, CAPACITY,
) = (tl.constexpr(int(column)) for column in Column)
WIDTH = tl.constexpr(COLUMNS)
MASK_END, MASK_OTHERS, MASK_FILL, FILL_FIRST, MASK_REFERENCE, SHORT_MASKS_REFERENCE = (
    tl.constexpr(int(flag)) for flag in Flag
)
NO_DECISION = tl.constexpr(NOTHING)
NOT_FINITE = tl.constexpr(NON_FINITE)
LOWEST = tl.constexpr(-3.0e38)
PIECE = 512
"""Ids per program of `scan`."""


@triton.jit(do_not_specialize=["batch"])
def enter(
    state, pages, row_slot, table, row_position, row_place, row_length, row_pages, residual, rounded, squares,
    most_pages, batch,
    HIDDEN: tl.constexpr, PADDED: tl.constexpr, PAGES_PADDED: tl.constexpr, TILES: tl.constexpr,
    TILES_PADDED: tl.constexpr,
    PAGE: tl.constexpr, PDL: tl.constexpr,
):
    """For each row: position, place in the cache (page * PAGE + offset; the dummy page 0 when
    inactive), length with this position (0 when inactive), all int32 [B], and its pages, int32 [B,
    most_pages]; its embedding from `table` [rows, HIDDEN] as residual float32 and rounded [B,
    HIDDEN], with the sum of squares in the first of `squares` [TILES, B] and 0 in the others.
    """
    launch_dependents(PDL, 1)
    row = tl.program_id(0)
    number = tl.load(row_slot + row)
    slot = state + number * WIDTH
    active = tl.load(slot + ACTIVE)
    position = tl.load(slot + LENGTH) * active
    page = tl.load(pages + number * most_pages + position // PAGE) * active
    tl.store(row_position + row, position)
    tl.store(row_place + row, page * PAGE + position % PAGE)
    tl.store(row_length + row, (position + 1) * active)
    places = tl.arange(0, PAGES_PADDED)
    listed = tl.load(pages + number * most_pages + places, mask=places < most_pages, other=0)
    tl.store(row_pages + row * most_pages + places, listed, mask=places < most_pages)
    columns = tl.arange(0, PADDED)
    within = columns < HIDDEN
    embedding = tl.load(table + tl.load(slot + INPUT).to(tl.int64) * HIDDEN + columns, mask=within, other=0.0)
    tl.store(residual + row * HIDDEN + columns, embedding.to(tl.float32), mask=within)
    tl.store(rounded + row * HIDDEN + columns, embedding, mask=within)
    tiles = tl.arange(0, TILES_PADDED)
    wide = embedding.to(tl.float32)
    tl.store(squares + tiles * batch + row, tl.where(tiles == 0, tl.sum(wide * wide, axis=0), 0.0), mask=tiles < TILES)


@triton.jit
def _masked(
    scores, ids, bars, TOKENS: tl.constexpr, END: tl.constexpr, FILL: tl.constexpr, REFERENCE: tl.constexpr,
    VOCABULARY: tl.constexpr,
):
    """Scores with -inf where an id may not be chosen, and with -0 replaced by 0. bars: the result
    of `_bars`.
    """
    end, others, fill, reference = bars
    barred = (ids >= VOCABULARY) | (end & (ids == END)) | (fill & (ids == FILL)) | (reference & (ids == REFERENCE))
    barred = barred | (others & (ids >= TOKENS) & (ids != END) & (ids != FILL))
    return tl.where(barred, float("-inf"), tl.where(scores == 0.0, 0.0, scores))


@triton.jit
def _bars(slot):
    """Which special ids may not be chosen now: the end, those without a name, the fill, and the id
    that the reference masks; slot: pointer to the state row.
    """
    flags = tl.load(slot + FLAGS)
    short = tl.load(slot + TOKEN_COUNT) < tl.load(slot + SHORTEST)
    end = ((flags & MASK_END) != 0) | (short & ((flags & SHORT_MASKS_REFERENCE) == 0))
    reference = ((flags & MASK_REFERENCE) != 0) | (short & ((flags & SHORT_MASKS_REFERENCE) != 0))
    return end, (flags & MASK_OTHERS) != 0, (flags & MASK_FILL) != 0, reference


@triton.jit
def scan(
    logits, state, row_slot, best, sums, peaks, finite,
    VOCABULARY: tl.constexpr, TOKENS: tl.constexpr, END: tl.constexpr, FILL: tl.constexpr, REFERENCE: tl.constexpr,
    PIECES: tl.constexpr, PIECE: tl.constexpr, TOP: tl.constexpr, PDL: tl.constexpr,
):
    """logits float32 [B, VOCABULARY] -> per row and piece: best int64 [B, PIECES, TOP], highest
    first, score and id in one number; peaks float32 [B, PIECES], the highest score, or LOWEST;
    sums float64 [B, PIECES] of exp(score - peak), 0 where all are masked; finite int32.
    """
    launch_dependents(PDL, 1)
    row, piece = tl.program_id(0), tl.program_id(1)
    wait_for_inputs(PDL)
    slot = state + tl.load(row_slot + row) * WIDTH
    bars = _bars(slot)
    ids = piece * PIECE + tl.arange(0, PIECE)
    raw = tl.load(logits + row * VOCABULARY + ids, mask=ids < VOCABULARY, other=0.0)
    fine = tl.min((tl.abs(raw) < float("inf")).to(tl.int32), axis=0)
    scores = _masked(raw, ids, bars, TOKENS, END, FILL, REFERENCE, VOCABULARY)
    bits = scores.to(tl.int32, bitcast=True)
    ordered = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.int64)
    keys = ordered * 8192 + (8191 - ids).to(tl.int64)
    top = tl.topk(keys, TOP)
    # Finite where all ids of the piece are masked: the difference of two infinities is no number.
    peak = tl.maximum(tl.max(scores, axis=0), LOWEST)
    weights = tl.where(scores == float("-inf"), 0.0, tl.exp(scores.to(tl.float64) - peak.to(tl.float64)))
    at = row * PIECES + piece
    tl.store(best + at * TOP + tl.arange(0, TOP), top)
    tl.store(peaks + at, peak)
    tl.store(sums + at, tl.sum(weights, axis=0))
    tl.store(finite + at, fine)


@triton.jit
def _uniform(slot, step, draw):
    """As cosyserve.philox.uniform: one double in [0, 1) for (draw, step, sentence, 0) under the
    seed.
    """
    low = tl.load(slot + SEED_LOW).to(tl.uint32, bitcast=True)
    high = tl.load(slot + SEED_HIGH).to(tl.uint32, bitcast=True)
    sentence = tl.load(slot + SENTENCE).to(tl.uint32, bitcast=True)
    zero = (sentence * 0).to(tl.uint32)
    c0, c1, c2, c3 = zero + draw, step.to(tl.uint32), sentence, zero
    for _ in tl.static_range(10):
        p0, p1 = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ low
        c1 = (p1 & 0xFFFFFFFF).to(tl.uint32)
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ high
        c3 = (p0 & 0xFFFFFFFF).to(tl.uint32)
        low = low + 0x9E3779B9
        high = high + 0xBB67AE85
    whole = c0.to(tl.int64) * 2097152 + (c1 >> 11).to(tl.int64)
    return whole.to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def _weights_without(
    logits, chosen, ids, bars, peak, TOKENS: tl.constexpr, END: tl.constexpr, FILL: tl.constexpr,
    REFERENCE: tl.constexpr, VOCABULARY: tl.constexpr,
):
    """float64 exp(score - peak) of `ids`, by the logits of a row; 0 for `chosen` and for ids that
    may not be chosen. bars: the result of `_bars`.
    """
    raw = tl.load(logits + ids, mask=ids < VOCABULARY, other=0.0)
    scores = _masked(raw, ids, bars, TOKENS, END, FILL, REFERENCE, VOCABULARY)
    return tl.where((scores == float("-inf")) | (ids == chosen), 0.0,
        tl.exp(scores.to(tl.float64) - peak.to(tl.float64)))


@triton.jit
def choose(
    logits, state, row_slot, best, sums, peaks, finite, history, replay, out, top_p, repeats, most_replayed,
    first_speech,
    VOCABULARY: tl.constexpr, TOKENS: tl.constexpr, END: tl.constexpr, FILL: tl.constexpr, REFERENCE: tl.constexpr,
    PIECES: tl.constexpr, PIECES_PADDED: tl.constexpr, PIECE: tl.constexpr,
    TOP: tl.constexpr, TOP_K: tl.constexpr, WINDOW: tl.constexpr, RING: tl.constexpr, PDL: tl.constexpr,
):
    """One decision per row -> out int32 [B]: an id, NOTHING or NON_FINITE; updates the state row
    for the next position.

    history: int32 [slots, RING], decision d at d % RING, RING >= WINDOW. replay: int32 [slots,
    most_replayed]. repeats: an id that occurs this often among the last WINDOW decisions is
    replaced by a draw among all other ids. first_speech: row of token 0 in the joined table.
    """
    launch_dependents(PDL, 1)
    row = tl.program_id(0)
    wait_for_inputs(PDL)
    number = tl.load(row_slot + row)
    slot = state + number * WIDTH
    if tl.load(slot + ACTIVE) == 0:
        tl.store(out + row, NO_DECISION)
    else:
        pieces = tl.arange(0, PIECES_PADDED)
        real = pieces < PIECES
        peak_of = tl.load(peaks + row * PIECES + pieces, mask=real, other=float("-inf"))
        peak = tl.max(peak_of, axis=0)
        sum_of = tl.load(sums + row * PIECES + pieces, mask=real, other=0.0)
        sum_of = tl.where(sum_of > 0.0, sum_of * tl.exp(peak_of.to(tl.float64) - peak.to(tl.float64)), 0.0)
        fine = tl.min(tl.load(finite + row * PIECES + pieces, mask=real, other=1), axis=0)
        decision, tokens = tl.load(slot + DECISIONS), tl.load(slot + TOKEN_COUNT)

        SPAN: tl.constexpr = PIECES_PADDED * TOP
        span = tl.arange(0, SPAN)
        keys = tl.load(best + row * (PIECES * TOP) + span, mask=span < PIECES * TOP, other=-9223372036854775807)
        keys = tl.topk(keys, TOP)
        order = tl.arange(0, TOP)
        ids = (8191 - (keys & 8191)).to(tl.int32)
        bits = (keys >> 13).to(tl.int32)
        scores = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)
        shares = tl.where(scores == float("-inf"), 0.0,
            tl.exp(scores.to(tl.float64) - peak.to(tl.float64))) / tl.sum(sum_of, axis=0)
        before = tl.cumsum(shares, axis=0) - shares
        accepted = (order < TOP_K) & (shares > 0.0) & (before < top_p)
        shares = tl.where(accepted, shares, 0.0)
        running = tl.cumsum(shares, axis=0)
        aim = _uniform(slot, decision, 0) * tl.max(running, axis=0)
        index = tl.sum((accepted & (running <= aim)).to(tl.int32), axis=0)
        index = tl.minimum(index, tl.sum(accepted.to(tl.int32), axis=0) - 1)
        chosen = tl.sum(tl.where(order == index, ids, 0), axis=0)

        back = tl.arange(0, RING)
        past = decision - 1 - back
        recent = tl.load(history + number * RING + (past + RING * WINDOW) % RING, mask=(back < WINDOW) & (past >= 0),
            other=-1)
        if tl.sum((recent == chosen).to(tl.int32), axis=0) >= repeats:
            bars = _bars(slot)
            inside = tl.arange(0, PIECE)
            home = chosen // PIECE
            own = logits + row * VOCABULARY
            close = _weights_without(own, chosen, home * PIECE + inside, bars, peak, TOKENS, END, FILL, REFERENCE,
                VOCABULARY)
            sum_of = tl.where(pieces == home, tl.sum(close, axis=0), sum_of)
            running_of = tl.cumsum(sum_of, axis=0)
            whole = tl.max(running_of, axis=0)
            aim = _uniform(slot, decision, 1) * whole
            # The piece in which the running sum passes the aim; the last with a weight if rounding
            # leaves none.
            last = tl.max(tl.where(sum_of > 0.0, pieces, 0), axis=0)
            piece = tl.minimum(tl.sum((real & (running_of <= aim)).to(tl.int32), axis=0), last)
            base = tl.sum(tl.where(pieces < piece, sum_of, 0.0), axis=0)
            close = _weights_without(own, chosen, piece * PIECE + inside, bars, peak, TOKENS, END, FILL, REFERENCE,
                VOCABULARY)
            reached = tl.sum((base + tl.cumsum(close, axis=0) <= aim).to(tl.int32), axis=0)
            chosen = piece * PIECE + tl.minimum(reached, tl.max(tl.where(close > 0.0, inside, 0), axis=0))

        flags = tl.load(slot + FLAGS)
        if tl.load(slot + FILL_AT) == decision:
            chosen = FILL
        keeps_fill = ((flags & FILL_FIRST) != 0) & (chosen == FILL)
        if (tokens < tl.load(slot + REPLAY)) & (keeps_fill == 0):
            chosen = tl.load(replay + number.to(tl.int64) * most_replayed + tokens)

        length = tl.load(slot + LENGTH) + 1
        spoken = chosen < TOKENS
        tokens += spoken.to(tl.int32)
        more = spoken & (tokens < tl.load(slot + LONGEST)) & (length < tl.load(slot + CAPACITY)) & (fine == 1)
        tl.store(history + number * RING + decision % RING, chosen)
        tl.store(slot + LENGTH, length)
        tl.store(slot + INPUT, first_speech + tl.minimum(chosen, TOKENS - 1))
        tl.store(slot + DECISIONS, decision + 1)
        tl.store(slot + TOKEN_COUNT, tokens)
        tl.store(slot + ACTIVE, more.to(tl.int32))
        tl.store(out + row, tl.where(fine == 1, chosen, NOT_FINITE))
