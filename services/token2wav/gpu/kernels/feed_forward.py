"""The feed-forward of a small batch in one launch: programs that share rows wait for each other at
a barrier instead of being split into two launches.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import erf, keep_tail, normalised, product


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
    """x [M, N] float32 += narrow gelu(wide norm(x)). wide_w [H, N], narrow_w [N, H]; N and H powers
    of two. HEADS: heads_bias [N] and heads [HEADS, M, N], the results of `attend_by_head`, are
    first added to x, in order.

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
