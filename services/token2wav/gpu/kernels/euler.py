"""The first and the last kernel of a pass over the estimator: prepare its input, and apply its
output as one Euler step.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.convolution import mish
from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.linear import normalised, product


@triton.jit
def prepare(
    mu, speaker, condition, noise, position, x, inputs, pool, own, page, tail, tail_step, FRAMES: tl.constexpr,
    BINS: tl.constexpr,
    BP: tl.constexpr, STEPS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """x float32 [units, FRAMES, BINS] = noise from the unit's first frame on; inputs [units, 2,
    FRAMES, 4 BINS] = x, mu, speaker, condition concatenated, all but x zero in row 1.

    The last two frames, which the next block's first convolution needs, are also stored in the own
    page for each of STEPS, none with 0: [2, 2, 4 BINS] at tail + step * tail_step, x for step 0
    only. position int32 [units]: frames before the unit, negative for one that begins with padding.
    Grid (units, FRAMES).
    """
    announce(CHAINED)
    unit, frame = tl.program_id(0), tl.program_id(1)
    bins = tl.arange(0, BP)
    fits = bins < BINS
    wait(CHAINED)
    at = (unit * FRAMES + frame) * BINS + bins
    place = tl.maximum(tl.load(position + unit) + frame, 0)
    noise_frame = tl.load(noise + place.to(tl.int64) * BINS + bins, mask=fits, other=0.0)
    tl.store(x + at, noise_frame, mask=fits)
    base = tl.load(own + unit).to(tl.int64) * page + tail
    for part in tl.static_range(4):
        if part == 0:
            value = noise_frame
        if part == 1:
            value = tl.load(mu + at, mask=fits, other=0.0)
        if part == 2:
            value = tl.load(speaker + unit * BINS + bins, mask=fits, other=0.0)
        if part == 3:
            value = tl.load(condition + at, mask=fits, other=0.0)
        for row in tl.static_range(2):
            put = value if row == 0 or part == 0 else tl.zeros_like(value)
            put = put.to(inputs.dtype.element_ty)
            column = part * BINS + bins
            tl.store(inputs + ((unit * 2 + row) * FRAMES + frame) * (4 * BINS) + column, put, mask=fits)
            if STEPS > 0 and frame >= FRAMES - 2:
                for step in range(1 if part == 0 else STEPS):
                    to = base + step * tail_step + (row * 2 + frame - (FRAMES - 2)) * (4 * BINS)
                    tl.store(pool + to + column, put, mask=fits)


@triton.jit
def euler_step(
    y, scale, shift, w, bias, x, inputs, pool, own, page, next_tail, dt, guidance, C: tl.constexpr, CP: tl.constexpr,
    FRAMES: tl.constexpr, BINS: tl.constexpr, BP: tl.constexpr, TAIL: tl.constexpr, BM: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """x += dt * guided velocity, velocity = mish(norm(y)) w^T + bias of both rows; x goes into
    `inputs` and, with TAIL, into the page too.

    y float32 [units, 2, FRAMES, C]; w [BINS, C]. Grid (units, ceil(FRAMES / BM)).
    """
    announce(CHAINED)
    unit = tl.program_id(0)
    frame, bins, inner = tl.program_id(1) * BM + tl.arange(0, BM), tl.arange(0, BP), tl.arange(0, CP)
    weights = tl.load(
        w + bins[None, :] * C + inner[:, None], mask=(bins < BINS)[None, :] & (inner < C)[:, None], other=0.0
    )
    gain, offset = tl.load(scale + inner, mask=inner < C, other=0.0), tl.load(shift + inner, mask=inner < C, other=0.0)
    constant = tl.load(bias + bins, mask=bins < BINS, other=0.0)
    wait(CHAINED)
    real = (frame < FRAMES)[:, None]
    at = (unit * FRAMES + frame)[:, None] * BINS + bins[None, :]
    fits = real & (bins < BINS)[None, :]
    guided = tl.zeros([BM, BP], tl.float32) + constant[None, :]
    for row in tl.static_range(2):
        here = y + ((unit * 2 + row) * FRAMES + frame)[:, None] * C + inner[None, :]
        values = tl.load(here, mask=real & (inner < C)[None, :], other=0.0)
        activated = mish(normalised(values, C, CP, 1e-5) * gain[None, :] + offset[None, :]).to(w.dtype.element_ty)
        velocity = product(activated, weights, tl.zeros([BM, BP], tl.float32))
        guided += velocity * (1.0 + guidance) if row == 0 else velocity * -guidance
    moved = tl.load(x + at, mask=fits, other=0.0) + dt * guided
    tl.store(x + at, moved, mask=fits)
    operand = moved.to(inputs.dtype.element_ty)
    for row in tl.static_range(2):
        tl.store(inputs + ((unit * 2 + row) * FRAMES + frame)[:, None] * (4 * BINS) + bins[None, :], operand, mask=fits)
        if TAIL:
            base = tl.load(own + unit).to(tl.int64) * page + next_tail
            to = base + (row * 2 + frame - (FRAMES - 2)) * (4 * BINS)
            tl.store(pool + to[:, None] + bins[None, :], operand, mask=fits & (frame >= FRAMES - 2)[:, None])
