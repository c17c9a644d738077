"""From the mel in the streams' rings to the phases of their harmonics: `vocoder.source.F0Predictor`
or `vocoder.causal.source.CausalPitch` in float64 and the cumulative sums of `vocoder.source`.

Rows are the frames of all windows, one window after the other; frame `i` of a window is frame first
- before + i of its sentence. As in `windowed_convolution`, layers are zero outside the sentence,
and at its edges a window reads its neighbour: some frames more with each layer.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait


@triton.jit
def placed(row, frames, before, first, end):
    """Window, frame of the sentence, and whether that frame exists."""
    b = row // frames
    frame = row % frames - before + tl.load(first + b)
    return b, frame, (frame >= 0) & (frame < tl.load(end + b))


@triton.jit(do_not_specialize=["rows", "frames", "before"])
def from_ring(
    ring, slots, first, end, mel, exact, rows, frames, before,
    RING: tl.constexpr, BINS: tl.constexpr, WIDTH: tl.constexpr, EXACT: tl.constexpr, BM: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """mel [rows, WIDTH] and exact float64 [rows, EXACT] = ring [slot, frame % RING, BINS] inside
    the sentence, zeros outside. Grid (ceil(rows / BM),).
    """
    announce(CHAINED)
    row, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, WIDTH)
    held = row < rows
    wait(CHAINED)
    b, frame, real = placed(tl.minimum(row, rows - 1), frames, before, first, end)
    at = (tl.load(slots + b) * RING + tl.maximum(frame, 0) % RING)[:, None] * BINS + c[None, :]
    values = tl.load(ring + at, mask=real[:, None] & (c < BINS)[None, :], other=0.0)
    tl.store(mel + row[:, None] * WIDTH + c[None, :], values.to(mel.dtype.element_ty), mask=held[:, None])
    tl.store(
        exact + row[:, None] * EXACT + c[None, :], values.to(tl.float64), mask=held[:, None] & (c < EXACT)[None, :]
    )


@triton.jit(do_not_specialize=["rows", "frames", "before"])
def pitch_layer(
    x, w, bias, out, first, end, rows, frames, before,
    C: tl.constexpr, N: tl.constexpr, TAPS: tl.constexpr, LEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """out [rows, N] = elu(bias + convolution of x [rows, C]) inside the sentence, zeros outside;
    float64. w [TAPS, C, N], the first of which sees the row LEAD rows after that of the output.
    Grid (ceil(rows / BM), N / BN); BK divides C.
    """
    announce(CHAINED)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    n, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    shifted = tl.load(bias + n)
    total = tl.zeros([BM, BN], tl.float64)
    rows_at = x + (tl.minimum(row, rows - 1) + LEAD)[:, None] * C + k[None, :]
    weights_at = w + k[:, None] * N + n[None, :]
    chunks: tl.constexpr = C // BK
    wait(CHAINED)
    for at in range(TAPS * chunks):
        # Consecutive rows are C elements apart, and so are consecutive taps; so the chunk after a
        # tap's last one is the next tap's first.
        total = tl.dot(tl.load(rows_at + at * BK), tl.load(weights_at + at * BK * N), total, out_dtype=tl.float64)
    total += shifted[None, :]
    total = tl.where(total > 0, total, tl.exp(tl.minimum(total, 0.0)) - 1.0)
    _, _, real = placed(tl.minimum(row, rows - 1), frames, before, first, end)
    tl.store(out + row[:, None] * N + n[None, :], tl.where(real[:, None], total, 0.0), mask=(row < rows)[:, None])


@triton.jit(do_not_specialize=["rows", "frames", "before"])
def pitch(
    x, w, bias, f0, first, end, rows, frames, before, C: tl.constexpr, CP: tl.constexpr, BM: tl.constexpr,
    CHAINED: tl.constexpr
):  # fmt: skip
    """f0 float32 [rows] in Hz = |bias + x [rows, C] w [C]| inside the sentence, 0 outside. Grid
    (ceil(rows / BM),).
    """
    announce(CHAINED)
    row, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, CP)
    weight = tl.load(w + c, mask=c < C, other=0.0)
    wait(CHAINED)
    at = tl.minimum(row, rows - 1)
    values = tl.load(x + at[:, None] * C + c[None, :], mask=(c < C)[None, :], other=0.0)
    hertz = tl.abs(tl.sum(values * weight[None, :], 1) + tl.load(bias)).to(tl.float32)
    _, _, real = placed(at, frames, before, first, end)
    tl.store(f0 + row, tl.where(real, hertz, 0.0), mask=row < rows)


@triton.jit(do_not_specialize=["frames", "reach", "pitched"])
def phases(
    f0, slots, counts, phase, turns, centres, frames, reach, pitched,
    RATE: tl.constexpr, HOP: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, BF: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """turns, centres float64 [batch, pitched, H] in revolutions of each harmonic: within a frame,
    and at its centre; from f0 [batch, frames] behind the first `reach`, and from the phase [slots,
    H] before, which becomes that of frame count - 1. Grid (batch,)."""
    announce(CHAINED)
    b, i, h = tl.program_id(0), tl.arange(0, BF), tl.arange(0, HP)
    wait(CHAINED)
    slot, last = tl.load(slots + b), tl.load(counts + b) - 1
    there = i < pitched
    hertz = tl.load(f0 + b * frames + reach + i, mask=there, other=0.0)
    share = tl.div_rn(hertz[:, None] * (h + 1).to(tl.float32)[None, :], tl.full([BF, HP], RATE, tl.float32))
    turned = (share - tl.floor(share)).to(tl.float64) * HOP
    before = tl.load(phase + slot * H + h, mask=h < H, other=0.0)
    centre = tl.cumsum(turned, 0) + before[None, :]
    centre = centre - tl.floor(centre)
    held = there[:, None] & (h < H)[None, :]
    to = (b * pitched + i)[:, None] * H + h[None, :]
    tl.store(turns + to, turned, mask=held)
    tl.store(centres + to, centre, mask=held)
    tl.store(phase + slot * H + h, tl.sum(tl.where((i == last)[:, None], centre, 0.0), 0), mask=h < H)
