"""The vocoder's excitation, its spectrum, and the samples from the network's spectrum, for windows
of several streams.
"""

import triton
import triton.language as tl

from services.token2wav.gpu.kernels.dependent_launch import announce, wait


@triton.jit
def philox(key0, key1, c0, c1, c2, c3):
    """Four words of Philox4x32-10, uint32 (see cosyserve.philox)."""
    for _ in tl.static_range(10):
        high0, low0 = (
            tl.umulhi(c0, tl.full(c0.shape, 0xD2511F53, tl.uint32)),
            c0 * tl.full(c0.shape, 0xD2511F53, tl.uint32),
        )
        high1, low1 = (
            tl.umulhi(c2, tl.full(c0.shape, 0xCD9E8D57, tl.uint32)),
            c2 * tl.full(c0.shape, 0xCD9E8D57, tl.uint32),
        )
        c0, c1, c2, c3 = high1 ^ c1 ^ key0, low1, high0 ^ c3 ^ key1, low0
        key0 = key0 + tl.full(c0.shape, 0x9E3779B9, tl.uint32)
        key1 = key1 + tl.full(c0.shape, 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def within_half(turns):
    """float64 revolutions, not negative -> equivalent float32 radians from -pi to pi."""
    return ((turns - tl.floor(turns + 0.5)) * 6.283185307179586).to(tl.float32)


@triton.jit
def two_normals(word0, word1):
    """Box-Muller -> two float32; the logarithm is float64, because near 1 float32 is not precise
    enough.
    """
    uniform = (word0.to(tl.float64) + 1.0) * 2.3283064365386963e-10
    radius = tl.sqrt(-2.0 * tl.log(uniform)).to(tl.float32)
    angle = within_half(word1.to(tl.float64) * 2.3283064365386963e-10)
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def one_harmonic(
    h: tl.constexpr,
    noise,
    total,
    centres,
    turns,
    left,
    fraction,
    held,
    voiced,
    level,
    weight,
    alpha_gain,
    H: tl.constexpr,
):
    """total + weight_h (voiced sine + level noise)."""
    where = tl.load(centres + left * H + h) + tl.where(held, 0.0, tl.load(turns + (left + 1) * H + h) * fraction)
    sine = tl.sin(within_half(where))
    return total + tl.load(weight + h) * (sine * alpha_gain * voiced + level * noise)


@triton.jit(
    do_not_specialize=["batch", "f0_frames", "reach", "frames", "words_apart", "samples", "start", "frames_before"]
)
def excitation(
    f0, centres, turns, weight, bias, out, first, end, seeds, batch, samples, f0_frames, reach, frames, words_apart,
    start, frames_before,
    alpha, sigma, threshold,
    H: tl.constexpr, HOP: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out float32 [batch, samples] from sample start + first * HOP of the sentence on.

    f0 float32 [batch, f0_frames], of which the first `reach` are left out; centres (phase at a
    frame's centre) and turns (its change since the centre before) float64 [batch, frames, H] in
    revolutions; frame 0 of them is frame first - frames_before. seeds int32: low and high word of
    the seed, sentence, each for all windows, words_apart elements apart. Samples outside the
    sentence mean nothing. Grid (ceil(samples / BLOCK), batch).
    """
    announce(CHAINED)
    b = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wait(CHAINED)
    begin = tl.load(first + b)
    sample = at + start + begin * HOP
    real = (at < samples) & (sample >= 0) & (sample < tl.load(end + b) * HOP)
    sample = tl.where(real, sample, 0)
    frame = sample // HOP
    behind = sample - HOP // 2
    early = behind < 0
    left = tl.where(early, 0, behind // HOP)
    fraction = ((behind - left * HOP).to(tl.float64) + 0.5) / HOP
    base = frames_before - begin
    # Clamped, because masked samples are loaded too; real samples are never outside the window.
    place = tl.minimum(tl.maximum(left + base, 0), frames - 2)
    here = tl.minimum(tl.maximum(frame + base, 0), frames - 1)
    rows = b * frames
    voiced = tl.where(tl.load(f0 + b * f0_frames + reach + here) > threshold, 1.0, 0.0)
    level = voiced * sigma + (1.0 - voiced) * (alpha / 3)
    key0, key1 = (
        tl.load(seeds + b).to(tl.uint32, bitcast=True),
        tl.load(seeds + words_apart + b).to(tl.uint32, bitcast=True),
    )
    sentence = tl.load(seeds + 2 * words_apart + b).to(tl.uint32, bitcast=True)
    none = tl.zeros([BLOCK], tl.uint32)
    total = tl.zeros([BLOCK], tl.float32) + tl.load(bias)
    centre, turn = centres + rows * H, turns + rows * H
    for quad in tl.static_range((H + 3) // 4):
        w0, w1, w2, w3 = philox(none + key0, none + key1, sample.to(tl.uint32), none, none + quad, none + sentence)
        n0, n1 = two_normals(w0, w1)
        n2, n3 = two_normals(w2, w3)
        total = one_harmonic(4 * quad, n0, total, centre, turn, place, fraction, early, voiced, level, weight, alpha, H)
        if 4 * quad + 1 < H:
            total = one_harmonic(
                4 * quad + 1, n1, total, centre, turn, place, fraction, early, voiced, level, weight, alpha, H
            )
        if 4 * quad + 2 < H:
            total = one_harmonic(
                4 * quad + 2, n2, total, centre, turn, place, fraction, early, voiced, level, weight, alpha, H
            )
        if 4 * quad + 3 < H:
            total = one_harmonic(
                4 * quad + 3, n3, total, centre, turn, place, fraction, early, voiced, level, weight, alpha, H
            )
    decay = tl.exp(-2.0 * tl.abs(total))
    sound = tl.where(total < 0, -1.0, 1.0) * (1.0 - decay) / (1.0 + decay)
    tl.store(out + b * samples + at, sound, mask=at < samples)


@triton.jit(do_not_specialize=["samples", "columns", "start_samples", "start"])
def analysed(
    source, basis, out, first, end, samples, columns, start_samples, start, HOP: tl.constexpr, RATE: tl.constexpr,
    FFT: tl.constexpr,
    STEP: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [batch, columns, N] = windowed spectrum of source [batch, samples] from column first *
    RATE + start on, STEP samples per column, centred. Beyond the ends of the sentence its mirror
    image is used; columns that do not exist are zeros. basis [FFT, N] includes the window, and
    zeros where N is wider than the spectrum. Grid (ceil(columns / BM), batch).
    """
    announce(CHAINED)
    b = tl.program_id(1)
    at, tap, channel = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, FFT), tl.arange(0, N)
    waves = tl.load(basis + tap[:, None] * N + channel[None, :])
    wait(CHAINED)
    begin, length = tl.load(first + b), tl.load(end + b) * HOP
    column = at + start + begin * RATE
    real = (at < columns) & (column >= 0) & (column <= tl.load(end + b) * RATE)
    sample = column[:, None] * STEP + tap[None, :] - FFT // 2
    sample = tl.where(sample < 0, -sample, sample)
    sample = tl.where(sample >= length, 2 * (length - 1) - sample, sample)
    place = sample - (start_samples + begin * HOP)
    held = real[:, None] & (place >= 0) & (place < samples)
    values = tl.load(source + b * samples + place, mask=held, other=0.0)
    spectrum = tl.dot(values, waves, input_precision="ieee")
    tl.store(out + (b * columns + at)[:, None] * N + channel[None, :], spectrum, mask=(at < columns)[:, None])


@triton.jit(do_not_specialize=["rows"])
def short_frames(
    planes, basis, out, rows, WIDTH: tl.constexpr, BINS: tl.constexpr, BP: tl.constexpr, FFT: tl.constexpr,
    LARGEST: tl.constexpr,
    BM: tl.constexpr,
    CHAINED: tl.constexpr
):  # fmt: skip
    """out [rows, FFT] = windowed inverse transform of planes [rows, WIDTH]: logarithm of the
    magnitude, then the phase's arc sine, BINS each. basis [2, BP, FFT] for real and imaginary
    parts. Grid (ceil(rows / BM),)."""
    announce(CHAINED)
    at, bins, tap = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BP), tl.arange(0, FFT)
    of_real = tl.load(basis + bins[:, None] * FFT + tap[None, :])
    of_imaginary = tl.load(basis + (BP + bins)[:, None] * FFT + tap[None, :])
    wait(CHAINED)
    held = (at < rows)[:, None] & (bins < BINS)[None, :]
    magnitude = tl.minimum(tl.exp(tl.load(planes + at[:, None] * WIDTH + bins[None, :], mask=held, other=0.0)), LARGEST)
    angle = tl.sin(tl.load(planes + at[:, None] * WIDTH + BINS + bins[None, :], mask=held, other=0.0))
    signal = tl.dot(tl.where(held, magnitude * tl.cos(angle), 0.0), of_real, input_precision="ieee")
    signal += tl.dot(tl.where(held, magnitude * tl.sin(angle), 0.0), of_imaginary, input_precision="ieee")
    tl.store(out + at[:, None] * FFT + tap[None, :], signal, mask=(at < rows)[:, None])


@triton.jit(do_not_specialize=["columns", "samples", "start", "late"])
def overlapped(
    frames, window, out, first, end, columns, samples, start, late, limit, HOP: tl.constexpr, RATE: tl.constexpr,
    FFT: tl.constexpr,
    STEP: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out [batch, samples] from sample first * HOP - late on: overlap-add of frames [batch,
    columns, FFT], divided by the summed squared window of the existing frames, limited to +-limit.
    `start`: column of frames[:, 0]. Samples before the sentence mean nothing. The window's first
    value is 0, so what stands there is not added, be it a number or none. Grid (ceil(samples /
    BLOCK), batch).
    """
    announce(CHAINED)
    b = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wait(CHAINED)
    begin, last = tl.load(first + b) * RATE, tl.load(end + b) * RATE
    total, energy = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(FFT // STEP):
        column = (at - late + FFT // 2) // STEP - part
        tap = (at - late + FFT // 2) % STEP + STEP * part
        real = (column + begin >= 0) & (column + begin <= last)
        gain = tl.load(window + tap)
        place = column - start
        held = real & (place >= 0) & (place < columns) & (tap > 0)
        total += tl.load(frames + (b * columns + place) * FFT + tap, mask=held, other=0.0)
        energy += tl.where(real, gain * gain, 0.0)
    sound = total / tl.maximum(energy, 1e-8)
    # Comparisons instead of clamp, so that NaN is preserved.
    sound = tl.where(sound > limit, limit, tl.where(sound < -limit, -limit, sound))
    tl.store(out + b * samples + at, sound, mask=at < samples)
