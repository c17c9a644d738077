"""Attention over a paged cache, one kernel for decode steps and one for prefill chunks. Grouped
queries: G heads share a key head.

    cache   [pages, key heads, 2, PAGE, D] of one layer: keys, then values; keys are rotated, with
            the numbers of a rotary pair adjacent
    pages   int32 [slots, most pages]: the page of positions PAGE * i to PAGE * i + PAGE - 1 of a
            slot

Online softmax: Milakov and Gimelshein, 2018; Dao et al. (FlashAttention), 2022. Splitting a row's
keys: Dao et al. (Flash-Decoding), 2023.
"""

# fmt: off
import triton
import triton.language as tl

from services.llm.gpu.kernels.dependent_launch import launch_dependents, wait_for_inputs


@triton.jit
def _with_block(query, block, seen, filled, highest, weight, total, scale, PAGE: tl.constexpr, D: tl.constexpr,
    PRECISION: tl.constexpr):
    """Online softmax: maximum, sum and weighted values [rows, D] so far, with one more block of
    PAGE keys and values. seen: which scores [rows, PAGE] count. filled: which positions were
    written.
    """
    inside, dims = tl.arange(0, PAGE), tl.arange(0, D)
    keys = tl.load(block + inside[:, None] * D + dims[None, :])
    values = tl.load(block + PAGE * D + inside[:, None] * D + dims[None, :], mask=filled[:, None], other=0.0)
    scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
    scores = tl.where(seen, scores, float("-inf"))
    peak = tl.maximum(highest, tl.max(scores, axis=1))
    shares = tl.exp(scores - peak[:, None])
    fade = tl.exp(highest - peak)
    total = tl.dot(shares.to(values.dtype), values, total * fade[:, None], input_precision=PRECISION)
    return peak, weight * fade + tl.sum(shares, axis=1), total


@triton.jit
def attend_row(
    queries, cache, row_pages, row_length, partial, partial_stats, arrived, out, scale, most_pages,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, G: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr, PDL: tl.constexpr,
):
    """One position per row. queries [B, HEADS * D] -> out [B, HEADS * D]; rows of length 0 are
    skipped. row_pages: int32 [B, most_pages].

    Split s takes pages s, s + SPLITS and so on; the program that finishes last adds the splits in
    order, so a row's numbers depend only on the row and on SPLITS. G: HEADS / KEY_HEADS padded to
    16 or more. partial: float32 [B, KEY_HEADS, SPLITS, G, D]; partial_stats: float32 [B, KEY_HEADS,
    SPLITS, 2, G], maximum and sum; arrived: int32 [B, KEY_HEADS], 0 before and after. Moves 2 * D
    numbers for each position and key head.
    """
    launch_dependents(PDL, 1)
    row, key_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = HEADS // KEY_HEADS
    members, dims, inside = tl.arange(0, G), tl.arange(0, D), tl.arange(0, PAGE)
    at = row * (HEADS * D) + (key_head * GROUP + members)[:, None] * D + dims[None, :]
    wait_for_inputs(PDL)
    length = tl.load(row_length + row)
    query = tl.load(queries + at, mask=(members < GROUP)[:, None], other=0.0)
    used = tl.cdiv(length, PAGE)
    if split < used:
        highest = tl.full([G], float("-inf"), tl.float32)
        weight = tl.zeros([G], tl.float32)
        total = tl.zeros([G, D], tl.float32)
        for number in range(split, used, SPLITS):
            page = tl.load(row_pages + row * most_pages + number).to(tl.int64)
            block = cache + (page * KEY_HEADS + key_head) * (2 * PAGE * D)
            filled = number * PAGE + inside < length
            highest, weight, total = _with_block(query, block, filled[None, :], filled, highest, weight, total, scale,
                PAGE, D, PRECISION)
        launch_dependents(PDL, 2)
        parts = tl.minimum(used, SPLITS)
        if parts == 1:
            tl.store(out + at, (total / weight[:, None]).to(out.dtype.element_ty), mask=(members < GROUP)[:, None])
        else:
            pair = row * KEY_HEADS + key_head
            grid = members[:, None] * D + dims[None, :]
            tl.store(partial + (pair * SPLITS + split) * (G * D) + grid, total)
            stats = partial_stats + (pair * SPLITS + split) * (2 * G) + members
            tl.store(stats, highest)
            tl.store(stats + G, weight)
            tl.debug_barrier()
            if tl.atomic_add(arrived + pair, 1, sem="acq_rel") == parts - 1:
                splits = tl.arange(0, SPLITS)
                there = splits < parts
                spread = partial_stats + (pair * SPLITS + splits)[:, None] * (2 * G) + members[None, :]
                highests = tl.load(spread, mask=there[:, None], other=float("-inf"), cache_modifier=".cg")
                weights = tl.load(spread + G, mask=there[:, None], other=0.0, cache_modifier=".cg")
                place = partial + (pair * SPLITS + splits)[:, None, None] * (G * D) + grid[None, :, :]
                real = there[:, None, None] & (members < GROUP)[None, :, None]
                totals = tl.load(place, mask=real, other=0.0, cache_modifier=".cg")
                factors = tl.exp(highests - tl.max(highests, axis=0)[None, :])
                whole = tl.sum(weights * factors, axis=0)
                result = tl.sum(totals * factors[:, :, None], axis=0) / whole[:, None]
                tl.store(out + at, result.to(out.dtype.element_ty), mask=(members < GROUP)[:, None])
                tl.store(arrived + pair, 0)


@triton.jit
def attend_tile(
    queries, cache, pages, tile_slot, tile_position, tile_count, out, scale, most_pages,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, G: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Causal attention of tiles of TILE positions of one sequence each, whose keys and values are
    in the cache already.

    queries [tiles * TILE, HEADS * D] -> out of that shape. tile_slot, tile_position, tile_count:
    int32 [tiles]: slot, first position, and number of real positions of a tile (0: an empty tile).
    Keys are read page by page from the first, so a row's numbers depend neither on its place in a
    tile nor on how a prompt is cut into chunks. G: HEADS / KEY_HEADS padded to a power of two.
    """
    tile, key_head = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KEY_HEADS
    ROWS: tl.constexpr = TILE * G
    count = tl.load(tile_count + tile)
    if count > 0:
        begin, slot = tl.load(tile_position + tile), tl.load(tile_slot + tile)
        rows, dims, inside = tl.arange(0, ROWS), tl.arange(0, D), tl.arange(0, PAGE)
        place, member = rows // G, rows % G
        real = (member < GROUP) & (place < count)
        at = (tile * TILE + place)[:, None] * (HEADS * D) + (key_head * GROUP + member)[:, None] * D + dims[None, :]
        query = tl.load(queries + at, mask=real[:, None], other=0.0)
        highest = tl.full([ROWS], float("-inf"), tl.float32)
        weight = tl.zeros([ROWS], tl.float32)
        total = tl.zeros([ROWS, D], tl.float32)
        for number in range(tl.cdiv(begin + count, PAGE)):
            page = tl.load(pages + slot * most_pages + number).to(tl.int64)
            block = cache + (page * KEY_HEADS + key_head) * (2 * PAGE * D)
            positions = number * PAGE + inside
            filled = positions < begin + count
            seen = (positions[None, :] <= (begin + place)[:, None]) & filled[None, :]
            highest, weight, total = _with_block(query, block, seen, filled, highest, weight, total, scale, PAGE, D,
                PRECISION)
        tl.store(out + at, (total / weight[:, None]).to(out.dtype.element_ty), mask=real[:, None])
