"""The excitation of causal HiFT, whose waves stand still for a whole frame: the arithmetic of
`vocoder.causal.source`, for windows of several streams.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait
from services.token2wav.gpu.kernels.excitation import philox


@triton.jit(do_not_specialize=["frames", "unpitched", "pitched"])
def held_waves(
    f0, slots, counts, totals, waves, frames, unpitched, pitched, alpha, threshold,
    RATE: tl.constexpr, HOP: tl.constexpr, H: tl.constexpr, HP: tl.constexpr, BF: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """waves float32 [batch, pitched, H], zero where unvoiced, from f0 [batch, frames] behind the
    first `unpitched`, and from totals float64 [slots, H], the sum of phase before them, which
    becomes that of frame count - 1.

    Each sum is rounded to float32, and the phase is made of it by two more roundings, as in the
    reference; its sine is that of the rounded phase. Grid (batch,).
    """
    announce(CHAINED)
    b, i, h = tl.program_id(0), tl.arange(0, BF), tl.arange(0, HP)
    wait(CHAINED)
    slot, last = tl.load(slots + b), tl.load(counts + b) - 1
    there = i < pitched
    hertz = tl.load(f0 + b * frames + unpitched + i, mask=there, other=0.0)
    share = tl.div_rn(hertz[:, None] * (h + 1).to(tl.float32)[None, :], tl.full([BF, HP], RATE, tl.float32))
    before = tl.load(totals + slot * H + h, mask=h < H, other=0.0)
    total = tl.cumsum((share - tl.floor(share)).to(tl.float64), 0) + before[None, :]
    phase = total.to(tl.float32) * 2.0 * 3.141592653589793 * HOP
    turns = phase.to(tl.float64) * 0.15915494309189535
    sine = tl.sin((turns - tl.floor(turns + 0.5)) * 6.283185307179586).to(tl.float32)
    wave = sine * alpha * tl.where(hertz > threshold, 1.0, 0.0)[:, None]
    held = there[:, None] & (h < H)[None, :]
    tl.store(waves + (b * pitched + i)[:, None] * H + h[None, :], wave, mask=held)
    tl.store(totals + slot * H + h, tl.sum(tl.where((i == last)[:, None], total, 0.0), 0), mask=h < H)


@triton.jit
def uniform(word):
    """uint32 -> float32 in [0, 1), of its upper 24 bits."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit(do_not_specialize=["f0_frames", "unpitched", "frames", "words_apart", "samples", "start", "frames_before"])
def held_excitation(
    f0, waves, weight, bias, out, first, end, seeds, samples, f0_frames, unpitched, frames, words_apart, start,
    frames_before,
    alpha, sigma, threshold,
    H: tl.constexpr, HOP: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out float32 [batch, samples] from sample start + first * HOP of the sentence on.

    f0 float32 [batch, f0_frames], of which the first `unpitched` are left out; waves float32
    [batch, frames, H], frame 0 of which is frame first - frames_before. seeds int32: low and high
    word of the seed, sentence, each for all windows, words_apart elements apart. Samples outside
    the sentence mean nothing. Grid (ceil(samples / BLOCK), batch).
    """
    announce(CHAINED)
    b = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wait(CHAINED)
    begin = tl.load(first + b)
    sample = at + start + begin * HOP
    real = (at < samples) & (sample >= 0) & (sample < tl.load(end + b) * HOP)
    sample = tl.where(real, sample, 0)
    # Clamped, because masked samples are loaded too; real samples are never outside the window.
    here = tl.minimum(tl.maximum(sample // HOP + frames_before - begin, 0), frames - 1)
    voiced = tl.where(tl.load(f0 + b * f0_frames + unpitched + here) > threshold, 1.0, 0.0)
    level = voiced * sigma + (1.0 - voiced) * (alpha / 3)
    key0, key1 = (
        tl.load(seeds + b).to(tl.uint32, bitcast=True),
        tl.load(seeds + words_apart + b).to(tl.uint32, bitcast=True),
    )
    sentence = tl.load(seeds + 2 * words_apart + b).to(tl.uint32, bitcast=True)
    none = tl.zeros([BLOCK], tl.uint32)
    total = tl.zeros([BLOCK], tl.float32) + tl.load(bias)
    wave = waves + (b * frames + here) * H
    for quad in tl.static_range((H + 3) // 4):
        w0, w1, w2, w3 = philox(none + key0, none + key1, sample.to(tl.uint32), none, none + quad, none + sentence)
        total += tl.load(weight + 4 * quad) * (tl.load(wave + 4 * quad) + level * uniform(w0))
        if 4 * quad + 1 < H:
            total += tl.load(weight + 4 * quad + 1) * (tl.load(wave + 4 * quad + 1) + level * uniform(w1))
        if 4 * quad + 2 < H:
            total += tl.load(weight + 4 * quad + 2) * (tl.load(wave + 4 * quad + 2) + level * uniform(w2))
        if 4 * quad + 3 < H:
            total += tl.load(weight + 4 * quad + 3) * (tl.load(wave + 4 * quad + 3) + level * uniform(w3))
    decay = tl.exp(-2.0 * tl.abs(total))
    sound = tl.where(total < 0, -1.0, 1.0) * (1.0 - decay) / (1.0 + decay)
    tl.store(out + b * samples + at, sound, mask=at < samples)
