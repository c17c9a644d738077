"""Kernels between the matrix products of a prefill chunk. Rows are positions; several sequences may
share a chunk.
"""

# fmt: off
import triton
import triton.language as tl


@triton.jit
def add_and_norm(
    residual, change, normed, epsilon, HIDDEN: tl.constexpr, PADDED: tl.constexpr, ADD: tl.constexpr,
):
    """residual float32 [n, HIDDEN] += change [n, HIDDEN] (with ADD), and normed [n, HIDDEN]: its
    rows scaled to a mean square of 1.
    """
    row = tl.program_id(0)
    columns = tl.arange(0, PADDED)
    within = columns < HIDDEN
    at = row * HIDDEN + columns
    x = tl.load(residual + at, mask=within, other=0.0)
    if ADD:
        x += tl.load(change + at, mask=within, other=0.0).to(tl.float32)
        tl.store(residual + at, x, mask=within)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / HIDDEN + epsilon)
    tl.store(normed + at, (x * scale).to(normed.dtype.element_ty), mask=within)


@triton.jit
def rotate_heads(
    joined, bias, cosines, sines, positions, places, queries, cache,
    QUERY: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, PADDED: tl.constexpr,
):
    """joined [n, QUERY + 2 KEYS] plus bias -> queries [n, QUERY], rotated; keys (rotated) and
    values into the cache of this layer.

    positions, places: int32 [n], position of a row in its sequence and in the cache (page * PAGE +
    offset); place -1: not stored. Layouts as in `products.project_heads`.
    """
    row = tl.program_id(0)
    WIDTH: tl.constexpr = QUERY + 2 * KEYS
    columns = tl.arange(0, PADDED)
    within = columns < WIDTH
    x = tl.load(joined + row * WIDTH + columns, mask=within, other=0.0).to(tl.float32) + tl.load(bias + columns,
        mask=within, other=0.0)
    pairs = tl.arange(0, PADDED // 2) % (D // 2)
    position, place = tl.load(positions + row), tl.load(places + row)
    cosine, sine = tl.load(cosines + position * (D // 2) + pairs), tl.load(sines + position * (D // 2) + pairs)
    one, other = tl.split(tl.reshape(x, [PADDED // 2, 2]))
    rotated = tl.reshape(tl.join(one * cosine - other * sine, other * cosine + one * sine), [PADDED])
    result = tl.where(columns < QUERY + KEYS, rotated, x)
    tl.store(queries + row * QUERY + columns, result.to(queries.dtype.element_ty), mask=columns < QUERY)
    behind = tl.maximum(columns - QUERY, 0)
    head, d = (behind % KEYS) // D, behind % D
    block = ((place // PAGE).to(tl.int64) * (KEYS // D) + head) * 2 + behind // KEYS
    at = (block * PAGE + place % PAGE) * D + d
    filled = within & (columns >= QUERY) & (columns * 0 + place >= 0)
    tl.store(cache + at, result.to(cache.dtype.element_ty), mask=filled)


@triton.jit
def gate(joined, out, MLP: tl.constexpr, BLOCK: tl.constexpr):
    """joined [n, 2 MLP] -> out [n, MLP] = silu(first half) * second half."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    within = columns < MLP
    gates = tl.load(joined + row * (2 * MLP) + columns, mask=within, other=0.0).to(tl.float32)
    ups = tl.load(joined + row * (2 * MLP) + MLP + columns, mask=within, other=0.0).to(tl.float32)
    result = gates / (1.0 + tl.exp(-gates)) * ups
    tl.store(out + row * MLP + columns, result.to(out.dtype.element_ty), mask=within)
