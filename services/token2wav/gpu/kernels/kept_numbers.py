"""How kernels write and read the keys and values that pages keep: as operands, or as numbers of
eight bits with a scale for each frame and head.

At `offset` a page contains, for one layer and Euler step, numbers [ROWS, 2 (keys, values), FRAMES,
HEADS WIDTH]. With RATIO 1 they are operands. Above it, RATIO of them take the place of one operand,
and behind them are scales [ROWS, HEADS, FRAMES, 2 (keys, values)] in the operand type. The largest
magnitude of a frame's head becomes LARGEST: 127 of int8, 448 of float8 (e4m3). A scale needs only
what the program that writes it has: it is the same whatever the tiles, and no later frame changes
it. `pool` is the memory as operands, `kept` the same memory as numbers.

A block reads its own keys and values from its page like those before it, rounded. So what a block
computes is the same whether its page is read later, is made again, or was never kept.
"""

import triton
import triton.language as tl

_INT8_TO_BFLOAT16: tl.constexpr = tl.constexpr("""{
    .reg .b32 first, second, low, high, minus;
    mov.b32 minus, 0xbf80bf80;
    prmt.b32 first, $2, 0, 0x4140;
    prmt.b32 second, $2, 0, 0x4342;
    lop3.b32 low, first, 0x007f007f, 0x43004300, 0xea;
    lop3.b32 high, first, 0x00800080, 0x43004300, 0xea;
    fma.rn.bf16x2 $0, high, minus, low;
    lop3.b32 low, second, 0x007f007f, 0x43004300, 0xea;
    lop3.b32 high, second, 0x00800080, 0x43004300, 0xea;
    fma.rn.bf16x2 $1, high, minus, low;
}""")
"""Four at once, exactly: 0x4300 is 128 in bfloat16, whose mantissa takes seven bits. With those of
the number it is 128 + n % 128, with its sign bit 128 or 256; their difference is n. Conversion
instructions have a quarter of the rate, or less.
"""


@triton.jit
def keep_vectors(
    result, pool, kept, at, section, row, frame, first, inside, INNER: tl.constexpr, WIDTH: tl.constexpr,
    FRAMES: tl.constexpr, ROWS: tl.constexpr, RATIO: tl.constexpr, LARGEST: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Keep result float32 [BM, BN], channels from `first` on of keys (section 0) or values (1).

    at int64 [BM]: where in `pool` the layer of the frame's page begins; row and frame int32 [BM];
    inside [BM]: which frames there are. With RATIO above 1, BN is a multiple of WIDTH.
    """
    place = ((row * 2 + section) * FRAMES + frame) * INNER
    channel = first + tl.arange(0, BN)
    if RATIO == 1:
        here = pool + (at + place)[:, None] + channel[None, :]
        tl.store(here, result.to(pool.dtype.element_ty), mask=inside[:, None])
    else:
        heads: tl.constexpr = BN // WIDTH
        vectors = tl.reshape(result, [BM, heads, WIDTH])
        scale = (tl.max(tl.abs(vectors), axis=2) * (1.0 / LARGEST)).to(pool.dtype.element_ty)
        divided = scale.to(tl.float32)
        inverse = 1.0 / tl.where(divided > 0, divided, float("inf"))
        numbers = tl.reshape(vectors * inverse[:, :, None], [BM, BN])
        # A scale that was rounded down leaves a number above the largest.
        numbers = tl.minimum(tl.maximum(numbers, -LARGEST), LARGEST)
        if kept.dtype.element_ty == tl.int8:
            numbers = tl.floor(numbers + 0.5)
        here = kept + (at * RATIO + place)[:, None] + channel[None, :]
        tl.store(here, numbers.to(kept.dtype.element_ty), mask=inside[:, None])
        behind: tl.constexpr = ROWS * 2 * FRAMES * INNER // RATIO
        head = first // WIDTH + tl.arange(0, heads)
        slot = ((row * (INNER // WIDTH))[:, None] + head[None, :]) * FRAMES + frame[:, None]
        tl.store(pool + at[:, None] + behind + slot * 2 + section, scale, mask=inside[:, None])


@triton.jit
def as_operands(numbers, OPERANDS: tl.constexpr):
    """Numbers as pages keep them, in the type of operands, without rounding."""
    if (numbers.dtype == tl.int8) and (tl.bfloat16 == OPERANDS):
        converted = tl.inline_asm_elementwise(_INT8_TO_BFLOAT16, "=r,=r,r", [numbers], tl.bfloat16, False, 4)
    else:
        converted = numbers.to(OPERANDS)
    return converted


@triton.jit
def kept_scales(
    pool, at, row, head, frame, known, INNER: tl.constexpr, WIDTH: tl.constexpr, FRAMES: tl.constexpr,
    ROWS: tl.constexpr, RATIO: tl.constexpr,
):  # fmt: skip
    """Scales of a head's keys and of its values, float32, one for each of `frame`, 0 where not
    `known`; with RATIO 1 nothing is read, and nothing may be multiplied with them.

    at: where in `pool` the layer of the page begins, one number or one for each of `frame`. Two of
    bfloat16 are read as one word, because loads of two bytes are not fetched ahead.
    """
    keys, values = tl.zeros([frame.shape[0]], tl.float32), tl.zeros([frame.shape[0]], tl.float32)
    if RATIO > 1:
        behind: tl.constexpr = ROWS * 2 * FRAMES * INNER // RATIO
        here = pool + at + behind + ((row * (INNER // WIDTH) + head) * FRAMES + frame) * 2
        if RATIO == 2:
            both = tl.load(here.to(tl.pointer_type(tl.int32)), mask=known, other=0)
            keys = (both << 16).to(tl.float32, bitcast=True)
            values = (both & -65536).to(tl.float32, bitcast=True)
        else:
            keys = tl.load(here, mask=known, other=0.0)
            values = tl.load(here + 1, mask=known, other=0.0)
    return keys, values
