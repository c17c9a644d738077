"""The causal convolutions in groups of channels that tell the diffusion transformer where a frame
stands.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.convolution import mish
from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import keep_tail, product
from services.token2wav.gpu.kernels.modulated import keep_stream


@triton.jit(do_not_specialize=["M"])
def position_convolution(
    a, w, bias, out, x, moments, gain, pool, own, before, M, page, tail, out_tail, N: tl.constexpr, GROUP: tl.constexpr,
    GP: tl.constexpr, FRAMES: tl.constexpr, ROWS: tl.constexpr, TAPS: tl.constexpr, ONTO: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """mish(convolution of a [M, N] over the frames of each unit), each GROUP channels by
    themselves.

    w [N, TAPS, GROUP]. before int32 [units]: the page of the stream's previous block, -1 at the
    start of the stream, where the context is zero; at `tail` it contains [ROWS, TAPS - 1, N]. The
    result goes to `out` [M, N] and its last TAPS - 1 frames to the own page at `out_tail`; or, with
    ONTO, it is added to x and kept as the stream of `kernels.modulated`, `out` its copy, in parts
    of GROUP columns. Taps and channels are one inner dimension, taken BK at a time. Grid (N /
    GROUP, ceil(M / BM)).
    """
    announce(CHAINED)
    group = tl.program_id(0)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    part = tl.arange(0, GP)
    columns, fits = group * GROUP + part, part < GROUP
    frame, row = rows % FRAMES, rows // FRAMES % ROWS
    old = tl.load(before + rows // (ROWS * FRAMES), mask=rows < M, other=-1)  # no kernel writes it
    shift = tl.load(bias + columns, mask=fits, other=0.0)
    base = old.to(tl.int64) * page + tail + row * (TAPS - 1) * N + group * GROUP
    total = tl.zeros([BM, GP], tl.float32)
    wait(CHAINED)
    for first in range(0, TAPS * GROUP, BK):
        inner = first + tl.arange(0, BK)
        real = inner < TAPS * GROUP
        tap, channel = inner // GROUP, inner % GROUP
        weights = tl.load(
            w + columns[None, :] * (TAPS * GROUP) + inner[:, None], mask=fits[None, :] & real[:, None], other=0.0
        )
        source = frame[:, None] + (tap - (TAPS - 1))[None, :]
        there = (rows < M)[:, None] & real[None, :]
        now = tl.load(
            a + (rows[:, None] + (tap - (TAPS - 1))[None, :]) * N + (group * GROUP + channel)[None, :],
            mask=there & (source >= 0),
            other=0.0,
        )
        past = tl.load(
            pool + base[:, None] + (source + TAPS - 1) * N + channel[None, :],
            mask=there & (source < 0) & (old >= 0)[:, None],
            other=0.0,
        )
        total = product(now + past, weights, total)
    result = mish(total + shift[None, :])
    inside = (rows < M)[:, None] & fits[None, :]
    at = rows[:, None] * N + columns[None, :]
    if ONTO:
        result += tl.load(x + at, mask=inside, other=0.0)
        keep_stream(result, x, out, moments, gain, rows, columns, fits, group, GROUP, M, N, GROUP)
    else:
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)
        keep_tail(result, pool, own, rows, columns, inside, page, out_tail, N, FRAMES, ROWS, TAPS - 1)
