// The ring of stages, and waits that end.

constexpr u64 LONGEST_STEP = 10ull * 1000 * 1000 * 1000;
constexpr u32 BETWEEN_CLOCKS = 255;

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// A step whose waits do not end, because a program has no place on the device, stops with an error
// after ten seconds.
__device__ __forceinline__ void look_at_the_clock(u32& turns) {
    if (!(++turns & BETWEEN_CLOCKS) && nanoseconds() - shared_state().began > LONGEST_STEP) asm volatile("trap;");
}

__device__ __forceinline__ u32 address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

__device__ __forceinline__ bool done(u32 barrier, u32 parity) {
    u32 result;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(result) : "r"(barrier), "r"(parity) : "memory");
    return result != 0;
}

__device__ __forceinline__ bool done_now(u32 barrier, u32 parity) {
    u32 result;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(result) : "r"(barrier), "r"(parity) : "memory");
    return result != 0;
}

__device__ __forceinline__ void wait_until_done(u32 barrier, u32 parity) {
    u32 turns = 0;
    while (!done(barrier, parity)) look_at_the_clock(turns);
}

// The eight warps that multiply wait for each other.
__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void release_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

struct Ring {
    u32 base;
    int stage;
    u32 parity;

    __device__ __forceinline__ u32 full(int which) const { return base + STAGES * STAGE + 8 * which; }
    __device__ __forceinline__ u32 empty(int which) const { return full(STAGES + which); }
    __device__ __forceinline__ void begin() const {
        for (int which = 0; which < STAGES; which++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full(which)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty(which)), "r"(WARPS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ u32 filled() {
        wait_until_done(full(stage), parity);
        return base + stage * STAGE;
    }
    __device__ __forceinline__ void give_back(int which, int lane) {
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty(which)) : "memory");
    }
    __device__ __forceinline__ void release(int lane) {
        __syncwarp();
        give_back(stage, lane);
        next();
    }
};
