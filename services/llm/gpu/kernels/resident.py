"""How programs of one launch wait for each other and fetch weights ahead: a barrier over the whole
grid, whose programs must all be on the device at once, and reads into the second cache.

A program arrives as soon as its results are stored, fetches weights of the next phase, and only
then waits. After the wait it can read what every program stored before it arrived. Only thread 0 of
a program touches the counter. Source: PTX ISA, memory consistency model, and
cp.async.bulk.prefetch.

MEET: False in launches of a single phase, which need no barrier.
"""

# fmt: off
import triton
import triton.language as tl


@triton.jit
def arrive(counter, MEET: tl.constexpr):
    """Count this program as arrived; counter: uint32 in global memory."""
    if MEET:
        tl.debug_barrier()
        tl.inline_asm_elementwise("""{
            .reg .pred other;
            .reg .u32 thread;
            mov.u32 thread, %tid.x;
            mov.u32 $0, 0;
            setp.ne.u32 other, thread, 0;
            @!other red.release.gpu.global.add.u32 [$1], 1;
        }""", "=&r,l", [counter.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def wait(counter, arrivals, MEET: tl.constexpr):
    """Wait until the counter is at least `arrivals`."""
    if MEET:
        tl.inline_asm_elementwise("""{
            .reg .pred other, behind;
            .reg .u32 thread;
            mov.u32 thread, %tid.x;
            mov.u32 $0, 0;
            setp.ne.u32 other, thread, 0;
            @other bra passed;
        again:
            ld.acquire.gpu.global.u32 $0, [$1];
            setp.lt.u32 behind, $0, $2;
            @behind bra again;
        passed:
        }""", "=&r,l,r", [counter.to(tl.int64), arrivals], dtype=tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()


@triton.jit
def fetch_ahead(start, size, MEET: tl.constexpr):
    """Begin to read `size` bytes from `start` on into the second cache; both divisible by 16."""
    if MEET:
        tl.inline_asm_elementwise("""{
            .reg .pred first;
            .reg .u32 thread;
            mov.u32 thread, %tid.x;
            mov.u32 $0, 0;
            setp.eq.u32 first, thread, 0;
            @first cp.async.bulk.prefetch.L2.global [$1], $2;
        }""", "=&r,l,r", [start.to(tl.int64), size], dtype=tl.int32, is_pure=False, pack=1)
