// What the last warp of a program does: everything that the program reads, in the order of its use.

// The writer of the ring. Copies under way fill the queues of the memory, behind which the words
// of other programs wait, so there are at most UNDER_WAY at a time. What the ring has no room for
// is brought into the second-level cache, PIECE bytes every PACE cycles, at most AHEAD bytes ahead.
constexpr int UNDER_WAY = 2;
constexpr int AHEAD = 65536;
constexpr int PACE = 500;
constexpr int PIECE = 8192;

struct Writer {
    Ring ring;
    Ring seen;
    int ahead;
    const unsigned char* cached;
    const unsigned char* end;
    long long last;

    __device__ __forceinline__ void bring(const unsigned char* from, int lane) {
        const long long now = clock64();
        if (cached < from) cached = from;
        if (cached >= end || cached - from >= AHEAD || now - last < PACE) return;
        const u32 bytes = (u32)min((long long)PIECE, (long long)(end - cached));
        if (lane == 0)
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(cached), "r"(bytes) : "memory");
        cached += bytes;
        last = now;
    }
    __device__ __forceinline__ void await(u32 barrier, u32 parity, const unsigned char* from, int lane) {
        u32 turns = 0;
        while (!done_now(barrier, parity)) {
            bring(from, lane);
            look_at_the_clock(turns);
        }
    }
    // following: where the weights behind this copy begin.
    __device__ __forceinline__ void fill(const unsigned char* from, u32 bytes, u64 policy, int lane,
                                         const unsigned char* following) {
        await(ring.empty(ring.stage), ring.parity ^ 1, following, lane);
        if (++ahead > UNDER_WAY) {
            await(seen.full(seen.stage), seen.parity, following, lane);
            seen.next();
        }
        if (lane == 0) {
            const u32 barrier = ring.full(ring.stage);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                "[%3], %4;" ::"r"(ring.base + ring.stage * STAGE), "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                : "memory");
        }
        __syncwarp();
        bring(following, lane);
        ring.next();
    }
};

__device__ __forceinline__ void copy_everything(const Arguments& a, const Plan& plan, Ring ring, int lane, int slot,
                                                int active, int part, int parts, int key_head, int unit_pages) {
    Writer writer{ring, ring, 0, nullptr, a.weights + plan.weights + plan.bytes, 0};
    u64 once, again;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(again));
    const bool owner = plan.own >= 0;
    const int heads_count = plan.heads_count, gated_count = plan.gated_count;
    const int mine = lane < unit_pages ? a.pages[(long long)slot * a.most_pages + part + lane * parts] * active : 0;
    const unsigned char* from = a.weights + plan.weights;
#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
#pragma unroll 1
        for (int tile = 0; tile < heads_count; tile++, from += TILE) writer.fill(from, TILE, once, lane, from + TILE);
#pragma unroll 1
        for (int index = 0; index < unit_pages; index++) {
            const long long page = __shfl_sync(~0u, mine, index);
            writer.fill(a.cache + layer * a.layer_bytes + (page * KEY_HEADS + key_head) * PAGE_BYTES, PAGE_BYTES, again,
                        lane, from);
        }
        if (owner) {
            writer.fill(from, TILE, once, lane, from + TILE);
            from += TILE;
        }
        constexpr int FIRST = FIRST_STEPS * WARPS * 2 * UNIT, SECOND = 2 * TILE - FIRST;
#pragma unroll 1
        for (int half = 0; half < 2 * gated_count; half++) {
            const int bytes = half & 1 ? SECOND : FIRST;
            writer.fill(from, bytes, once, lane, from + bytes);
            from += bytes;
        }
        if (owner) {
#pragma unroll 1
            for (int chunk = 0; chunk < DEEP_CHUNKS; chunk++) {
                const int bytes = min(DEEP_CHUNK, DEEP - chunk * DEEP_CHUNK) * WARPS * UNIT;
                writer.fill(from, bytes, once, lane, from + bytes);
                from += bytes;
            }
        }
    }
#pragma unroll 1
    for (int id = 0; id < plan.ids; id += HEAD_ROWS) {
        const int bytes = min(HEAD_ROWS, plan.ids - id) * HIDDEN * 4;
        writer.fill(from, bytes, once, lane, from + bytes);
        from += bytes;
    }
}
