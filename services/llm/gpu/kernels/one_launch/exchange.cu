// Results are exchanged through the second-level cache in words that carry a tag, the number of the
// layer and of the step: a reader reads until all its words have the tag, so an exchange takes one
// write and one read, and neither a fence nor a counter. A word is written again in the next layer
// only by a program that has read results which depend on all reads of the old word.

__device__ __forceinline__ u64 read_one(const u64* from) {
    u64 one;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(one) : "l"(from) : "memory");
    return one;
}

__device__ __forceinline__ void read_two(const u64* from, u64& one, u64& other) {
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(one), "=l"(other) : "l"(from) : "memory");
}

__device__ __forceinline__ void read_wide(const u64* from, u64& low, u64& high) {
    asm volatile("{ .reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
                 : "=l"(low), "=l"(high) : "l"(from) : "memory");
}

__device__ __forceinline__ void write_wide(u64* to, u64 low, u64 high) {
    asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.gpu.global.b128 [%0], t; }" ::"l"(to), "l"(low),
                 "l"(high) : "memory");
}

__device__ __forceinline__ u64 tagged(u32 word, u32 tag) { return (u64)tag << 32 | word; }
__device__ __forceinline__ bool has(u64 word, u32 tag) { return (u32)(word >> 32) == tag; }
__device__ __forceinline__ u32 tag_of(u32 step, int layer) { return step * 32 + layer + 1; }

__device__ __forceinline__ void write_word(u64* to, u32 word, u32 tag) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(tagged(word, tag)) : "memory");
}

// Whether all lanes have what they wait for.
__device__ __forceinline__ bool all_ready(bool ready, u32& turns) {
    if (__all_sync(~0u, ready)) return true;
    look_at_the_clock(turns);
    return false;
}

// The columns of this warp: lane l < 28 has columns 4 l to 4 l + 3 of its 112, in two words.
__device__ __forceinline__ void read_row(const u64* row, u32 tag, int warp, int lane, u32& one, u32& other) {
    const u64* from = row + warp * (8 * STEPS) + 2 * lane;
    const bool mine = lane < 4 * STEPS;
    u32 turns = 0;
    u64 a, b;
    do {
        a = b = 0;
        if (mine) read_two(from, a, b);
    } while (!all_ready(!mine || (has(a, tag) && has(b, tag)), turns));
    one = (u32)a;
    other = (u32)b;
}

// Where a thread is. What follows from these values is computed again in every layer: computed once,
// it takes more registers than there are.
struct Here {
    int lane, warp;
    u64* exchange;

    __device__ __forceinline__ explicit Here(const Arguments& a)
        : lane(threadIdx.x & 31), warp(threadIdx.x >> 5), exchange(a.exchange) {
        asm volatile("" : "+r"(lane), "+r"(warp), "+l"(exchange));
    }
};
