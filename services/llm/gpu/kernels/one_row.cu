// One decode step of the speech-token model for one row, from the embedding of its input to the
// logits, as one launch of one program per multiprocessor. Programs wait for each other, so all of
// them have to be on the device at once.
//
// The last warp of a program copies the program's weights from memory into a ring of stages in
// shared memory, in the order in which they are used. It does not depend on the other programs, so
// memory delivers weights while the eight warps that multiply wait for the results of others.
//
// Results are exchanged through the second-level cache in words that carry a tag, the number of the
// layer and of the step: a reader reads until all its words have the tag, so an exchange takes one
// write and one read, and neither a fence nor a counter. A word is written again in the next layer
// only by a program that has read results which depend on all reads of the old word.
//
// A fragment is 512 bytes of weights for one instruction of the matrix units: 16 rows by 16 columns
// (gate and up), or 8 rows by 32 columns, of which the first 16 are multiplied by one column of the
// other operand and the last 16 by the next. Warp w multiplies the w-th eighth of the columns, the
// sums of the warps are added in order. So a row's numbers are the same at every run.
//
// Constants by -D: LAYERS, HIDDEN, MLP, HEADS, KEY_HEADS, IDS, STAGES, REGISTERS (of a thread, at
// most), MOST_TILES (of gate and up, of one program), UNDER_WAY (copies).

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARPS = 8;
constexpr int D = 64;
constexpr int PAGE = 64;
constexpr int PAGE_BYTES = 2 * PAGE * D * 2;
constexpr int GROUP = HEADS / KEY_HEADS;
constexpr int QUERY = HEADS * D;
constexpr int WIDTH = QUERY + 2 * KEY_HEADS * D;
constexpr int STEPS = HIDDEN / 16 / WARPS;
constexpr int FIRST_STEPS = 4;
constexpr int DEEP = MLP / 16 / WARPS;
constexpr int DEEP_CHUNK = 8;
constexpr int DEEP_CHUNKS = (DEEP + DEEP_CHUNK - 1) / DEEP_CHUNK;
constexpr int STAGE = 16384;
constexpr int UNIT = 256;
constexpr int TILE = STEPS * WARPS * UNIT;
constexpr int HEAD_ROWS = 4;
constexpr int MOST_PARTS = 4;
constexpr int STATE_COLUMNS = 16;
#ifndef AHEAD
#define AHEAD 131072
#endif
#ifndef PACE
#define PACE 500
#endif
#ifndef PIECE
#define PIECE 8192
#endif
constexpr u32 LONGEST_WAIT = 1u << 24;
static_assert(HIDDEN == 7 * 128 && QUERY == HIDDEN && STEPS == 7, "width");
static_assert(MLP == DEEP * 128 && DEEP % 2 == 0 && GROUP <= 8, "shape");

// Exchange buffers, in words of 8 bytes.
constexpr int AFTER_DOWN = 0;
constexpr int AFTER_OUT = AFTER_DOWN + HIDDEN / 2;
constexpr int PROJECTED = AFTER_OUT + HIDDEN / 2;
constexpr int GATED = PROJECTED + WIDTH / 2;
constexpr int LAST = GATED + MLP / 2;
constexpr int PARTS = LAST + HIDDEN;

struct Plan {
    long long weights;
    long long bytes;
    int own;
    int rank;
    int heads_count;
    int heads[5];
    int gated_count;
    int gated[7];
    int first_id;
    int ids;
};

struct Arguments {
    const unsigned char* weights;
    const Plan* plans;
    const float* bias;
    const float* head_bias;
    const float* cosines;
    const float* sines;
    const u32* table;
    unsigned char* cache;
    long long layer_bytes;
    const int* pages;
    const int* state;
    const int* rows;
    u64* exchange;
    u32* epoch;
    float* logits;
    u32* fault;
    long long* trace;
    int most_pages;
    float epsilon;
};

// What a thread that adds up sums of the first product needs.
struct HeadsRow {
    int row;
    int kept;
    float cosine;
    float sine;
};

// What all threads of a program have to know in every layer.
struct Task {
    int own;
    int heads_count;
    int gated_count;
    int position;
    int parts;
    int part;
    int key_head;
    int pages;
    u32 step;
};

struct Shared {
    u64 full[STAGES];
    u64 empty[STAGES];
    float sums[2][MOST_TILES * 16 * WARPS];
    float squares[2][WARPS];
    float fades[WARPS][8];
    float peaks[WARPS][8];
    float weights[WARPS][8];
    HeadsRow heads[16];
    int gated[MOST_TILES * 16];
    float residual[8];
    Task task;
};

__device__ __forceinline__ u32 address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

__device__ __forceinline__ bool done(u32 barrier, u32 parity) {
    u32 result;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(result) : "r"(barrier), "r"(parity) : "memory");
    return result != 0;
}

// A wait that no other program ends stops the kernel with an error, after seconds.
__device__ __forceinline__ void wait_until_done(u32 barrier, u32 parity) {
    u32 left = LONGEST_WAIT;
    while (!done(barrier, parity))
        if (!--left) asm volatile("trap;");
}

__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void release_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

constexpr int OF_BARRIERS = 0;

struct Ring {
    u32 base;
    int stage;
    u32 parity;

    __device__ __forceinline__ u32 full(int which) const { return base + STAGES * STAGE + OF_BARRIERS + 8 * which; }
    __device__ __forceinline__ u32 empty(int which) const { return full(STAGES + which); }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ u32 filled() {
#ifndef NO_RING
        wait_until_done(full(stage), parity);
#endif
        return base + stage * STAGE;
    }
    __device__ __forceinline__ void give_back(int which, int lane) {
#ifndef NO_RING
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty(which)) : "memory");
#endif
    }
    __device__ __forceinline__ void release(int lane) {
        __syncwarp();
        give_back(stage, lane);
        next();
    }
};

__device__ __forceinline__ bool done_now(u32 barrier, u32 parity) {
    u32 result;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(result) : "r"(barrier), "r"(parity) : "memory");
    return result != 0;
}

// The writer of the ring. Copies under way fill the queues of the memory, behind which the words
// of other programs wait, so there are few at a time. What the ring has no room for is brought
// into the second-level cache, PIECE bytes every PACE cycles, at most AHEAD bytes ahead.
struct Writer {
    Ring ring;
    Ring seen;
    int ahead;
    const unsigned char* cached;
    const unsigned char* end;
    long long last;

    __device__ __forceinline__ void bring(const unsigned char* from, int lane) {
        if (AHEAD == 0) return;
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
        u32 left = 1u << 28;
        while (!done_now(barrier, parity)) {
            bring(from, lane);
            if (!--left) asm volatile("trap;");
        }
    }
    // following: where the weights behind this copy begin.
    __device__ __forceinline__ void fill(const unsigned char* from, u32 bytes, u64 policy, int lane,
                                         const unsigned char* following) {
#ifndef NO_RING
        await(ring.empty(ring.stage), ring.parity ^ 1, following, lane);
        if (++ahead > UNDER_WAY) {
            await(seen.full(seen.stage), seen.parity, following, lane);
            seen.next();
        }
        if (lane == 0) {
            const u32 barrier = ring.full(ring.stage);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                "[%3], %4;" ::"r"(ring.base + ring.stage * STAGE), "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                : "memory");
        }
        __syncwarp();
        bring(following, lane);
#endif
        ring.next();
    }
};

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

__device__ __forceinline__ void write_word(u64* to, u32 word, u32 tag) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(tagged(word, tag)) : "memory");
}

// Whether all lanes have what they wait for.
__device__ __forceinline__ bool all_ready(bool ready, u32& left) {
#ifdef NO_POLL
    return true;
#endif
    if (__all_sync(~0u, ready)) return true;
    if (!--left) asm volatile("trap;");
#ifdef NAP
    __nanosleep(NAP);
#endif
    return false;
}

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&w)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(w[0]), "r"(w[2]), "r"(w[1]), "r"(w[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load(u32 (&x)[4], u32 at) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void load_half(u32 (&x)[4], u32 at) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(at) : "memory");
    x[2] = x[3] = 0;
}

__device__ __forceinline__ u32 load_word(u32 at) {
    u32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}

__device__ __forceinline__ void store_word(u32 at, u32 x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float logarithm(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float inverse_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float sum_of(const float* parts) {
    float4 a = *(const float4*)parts, b = *(const float4*)(parts + 4);
    return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

__device__ __forceinline__ float most_over_groups(float x) {
#pragma unroll
    for (int distance = 4; distance < 32; distance <<= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

#ifdef TRACE
#define MARK(number) \
    if (threadIdx.x == 0) a.trace[(blockIdx.x * (LAYERS + 1) + layer) * 16 + (number)] = clock64()
#else
#define MARK(number)
#endif

// The columns of this warp: lane l < 28 has columns 4 l to 4 l + 3 of its 112, in two words.
__device__ __forceinline__ void read_row(const u64* row, u32 tag, int warp, int lane, u32& one, u32& other) {
    const u64* from = row + warp * (8 * STEPS) + 2 * lane;
    const bool mine = lane < 4 * STEPS;
    u32 left = LONGEST_WAIT;
    u64 a, b;
    do {
        a = b = 0;
        if (mine) read_two(from, a, b);
    } while (!all_ready(!mine || (has(a, tag) && has(b, tag)), left));
    one = (u32)a;
    other = (u32)b;
}

__device__ __forceinline__ void note_squares(float* squares, u32 one, u32 other, int lane) {
    float sum =
        warp_sum(low(one) * low(one) + high(one) * high(one) + low(other) * low(other) + high(other) * high(other));
    if (lane == 0) *squares = sum;
}

// The lane with the four columns that this lane multiplies in the fragment `step` of 8 rows: its
// first half goes to even columns of the other operand, its second half to odd ones.
__device__ __forceinline__ int source(int step, int lane) { return 8 * step + (lane & 7); }

// Products of a tile of 8 rows with this warp's columns; lanes with lane % 4 == 0 have row lane / 4.
__device__ __forceinline__ float eight_rows(u32 stage, u32 one, u32 other, int warp, int lane) {
    u32 w[4][4], at = stage + warp * (STEPS * UNIT);
#pragma unroll
    for (int i = 0; i < 3; i++) load(w[i], at + i * 2 * UNIT + lane * 16);
    load_half(w[3], at + 6 * UNIT + lane * 8);
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        multiply(sums[i & 1], w[i], __shfl_sync(~0u, one, source(i, lane)), __shfl_sync(~0u, other, source(i, lane)));
    return (sums[0][0] + sums[0][3]) + (sums[1][0] + sums[1][3]);
}

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

// Keeps what follows from these values from being computed once for all layers, which takes more
// registers than there are.
#define FRESH() \
    int lane = thread & 31, warp = thread >> 5; \
    u64* exchange = a.exchange; \
    asm volatile("" : "+r"(lane), "+r"(warp), "+l"(exchange)); \
    [[maybe_unused]] const int group = lane >> 2, quad = lane & 3

extern "C" __global__ void __maxnreg__(REGISTERS) one_launch(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *(Shared*)(memory + STAGES * STAGE);
    const Plan& plan = a.plans[blockIdx.x];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    Ring ring{address(memory), 0, 0};
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.full(stage)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ring.empty(stage)), "r"(WARPS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int slot = a.rows[0];
    const int* state = a.state + slot * STATE_COLUMNS;
    const int active = state[2], position = active ? state[0] : 0, used = position / PAGE + 1;
    const int parts = min(MOST_PARTS, (used + 1) / 2);
    const int part = plan.rank % parts, key_head = plan.rank / parts;
    const int unit_pages = key_head < KEY_HEADS ? (used - part + parts - 1) / parts : 0;
    if (warp == WARPS) {
        copy_everything(a, plan, ring, lane, slot, active, part, parts, key_head, unit_pages);
        return;
    }

    const int own = plan.own, heads_count = plan.heads_count, gated_count = plan.gated_count;
#ifdef STREAM_ONLY
    const int chunks = LAYERS * (heads_count + unit_pages + (own >= 0 ? 1 + DEEP_CHUNKS : 0) + 2 * gated_count) +
                       (plan.ids + HEAD_ROWS - 1) / HEAD_ROWS;
    for (int i = 0; i < chunks; i++) {
        ring.filled();
        ring.release(lane);
    }
    return;
#endif
    if (threadIdx.x == 0) {
        shared.task = Task{own,  heads_count, gated_count, position,  parts,
                           part, key_head,    unit_pages,  *(volatile u32*)a.epoch};
    }
    const u32* embedding = a.table + (long long)state[1] * (HIDDEN / 2);
    const int thread = threadIdx.x;
    // For the threads that add up: row of the projection, its angle and place in the cache; word of
    // the gated product; and the part of the residual stream that this program keeps.
    if (threadIdx.x < 8 * heads_count) {
        const int row = plan.heads[threadIdx.x >> 3] * 8 + (int)(threadIdx.x & 7);
        HeadsRow one{row, -1, 1.0f, 0.0f};
        if (row < QUERY + KEY_HEADS * D) {
            const int at = position * (D / 2) + (row >> 1) % (D / 2);
            one.cosine = a.cosines[at];
            one.sine = row & 1 ? a.sines[at] : -a.sines[at];
        }
        if (row >= QUERY) {
            const int behind = row - QUERY, is_value = behind / (KEY_HEADS * D), head = behind % (KEY_HEADS * D) / D;
            const int page = a.pages[(long long)slot * a.most_pages + position / PAGE] * active;
            one.kept = (((page * KEY_HEADS + head) * 2 + is_value) * PAGE + position % PAGE) * D + behind % D;
        }
        shared.heads[threadIdx.x] = one;
    }
    if (threadIdx.x < 16 * gated_count)
        shared.gated[threadIdx.x] = plan.gated[threadIdx.x >> 4] * 4 + (int)((threadIdx.x & 7) >> 1);
    if (own >= 0 && threadIdx.x < 8) {
        const u32 word = embedding[own * 4 + (threadIdx.x >> 1)];
        shared.residual[threadIdx.x] = threadIdx.x & 1 ? high(word) : low(word);
    }
    meet();
    int flip = 0;

#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
        asm volatile("" ::: "memory");
        const Task& task = shared.task;
        MARK(0);
        // Queries, keys and values.
        if (task.heads_count) {
            FRESH();
            const int heads_count = task.heads_count;
            const u32 tag = task.step * 32 + layer + 1;
            const bool adds = threadIdx.x < 8 * heads_count;
            const float bias = adds ? a.bias[layer * WIDTH + shared.heads[threadIdx.x].row] : 0.0f;
            u32 one = 0, other = 0;
            if (layer) {
                read_row(exchange + AFTER_DOWN, tag - 1, warp, lane, one, other);
            } else if (lane < 4 * STEPS) {
                const uint2 words = *(const uint2*)(embedding + warp * (8 * STEPS) + 2 * lane);
                one = words.x;
                other = words.y;
            }
            MARK(1);
#pragma unroll 1
            for (int tile = 0; tile < heads_count; tile++) {
                const float sum = eight_rows(ring.filled(), one, other, warp, lane);
                ring.release(lane);
                if (quad == 0) shared.sums[flip][(tile * 8 + group) * WARPS + warp] = sum;
            }
            note_squares(&shared.squares[flip][warp], one, other, lane);
            meet();
            if (warp == 0) {
                const float scale = inverse_root(sum_of(shared.squares[flip]) / HIDDEN + a.epsilon);
                const HeadsRow mine = shared.heads[lane & 15];
                float value = adds ? sum_of(shared.sums[flip] + lane * WARPS) * scale + bias : 0.0f;
                float partner = __shfl_xor_sync(~0u, value, 1);
                value = value * mine.cosine + partner * mine.sine;
                partner = __shfl_xor_sync(~0u, value, 1);
                if (adds && !(lane & 1)) {
                    const u32 word = pack(value, partner);
                    write_word(exchange + PROJECTED + (mine.row >> 1), word, tag);
                    if (mine.kept >= 0) *(u32*)(a.cache + layer * a.layer_bytes + 2ll * mine.kept) = word;
                }
            }
            flip ^= 1;
        }
        MARK(2);
        // Attention of one key head to the pages part, part + parts and so on, two at a time: a warp
        // takes 16 keys.
        if (task.pages) {
            FRESH();
            const int unit_pages = task.pages, part = task.part, parts = task.parts, key_head = task.key_head;
            const int position = task.position, used = position / PAGE + 1;
            const u32 tag = task.step * 32 + layer + 1;
            // The pair of pages and the place in it with the newest key, which is not in the copies.
            const bool has_newest = (used - 1) % parts == part;
            const int newest_index = (used - 1) / parts;
            const bool newest_here =
                has_newest && (newest_index & 1) == warp >> 2 && (position % PAGE) >> 4 == (warp & 3);
            u32 q_low[4], q_high[4], newest_key, newest_value;
            {
                const u64* from =
                    exchange + PROJECTED + (key_head * GROUP + min(group, GROUP - 1)) * (D / 2) + 4 * quad;
                const u64* key = exchange + PROJECTED + QUERY / 2 + key_head * (D / 2) + lane;
                u32 left = LONGEST_WAIT;
                bool ready;
                do {
                    u64 w[8], k = tagged(0, tag), v = tagged(0, tag);
                    read_two(from, w[0], w[1]);
                    read_two(from + 2, w[2], w[3]);
                    read_two(from + 16, w[4], w[5]);
                    read_two(from + 18, w[6], w[7]);
                    if (newest_here) {
                        k = read_one(key);
                        v = read_one(key + KEY_HEADS * D / 2);
                    }
                    ready = has(k, tag) && has(v, tag);
                    newest_key = (u32)k;
                    newest_value = (u32)v;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        q_low[i] = (u32)w[i];
                        q_high[i] = (u32)w[i + 4];
                        ready = ready && has(w[i], tag) && has(w[i + 4], tag);
                    }
                } while (!all_ready(ready, left));
            }
            MARK(3);
            float peak[2] = {-1e30f, -1e30f}, weight[2] = {0.0f, 0.0f}, totals[GROUP][2] = {};
            int held[2];
            int scratch_stage = 0;
#pragma unroll 1
            for (int index = 0; index < unit_pages; index += 2) {
                const bool both = index + 1 < unit_pages, last = index + 2 >= unit_pages;
                u32 stage = ring.filled();
                held[0] = held[1] = ring.stage;
                ring.next();
                if (both) {
                    const u32 second = ring.filled();
                    held[1] = ring.stage;
                    ring.next();
                    if (warp >> 2) stage = second;
                }
                scratch_stage = held[0];
                const int mine = index + (warp >> 2);
                const int first = (part + mine * parts) * PAGE + (warp & 3) * 16;
                const int count = mine < unit_pages ? min(16, position + 1 - first) : 0;
                stage += (warp & 3) * (16 * D * 2);
                if (count > 0) {
                    if (newest_here && mine == newest_index) {
                        const int at = (position - first) * (D * 2) + lane * 4;
                        store_word(stage + at, newest_key);
                        store_word(stage + PAGE * D * 2 + at, newest_value);
                        __syncwarp();
                    }
                    // Reads of 16 bytes in an order in which 8 rows of 128 bytes use all banks.
                    const int odd = group & 1;
                    float scores[2][4] = {};
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const u32 row = stage + (group + 8 * half) * (D * 2);
                        u32 k[2][4];
                        load(k[0], row + (quad + 4 * odd) * 16);
                        load(k[1], row + (quad + 4 - 4 * odd) * 16);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const u32 w[4] = {odd ? k[1][i] : k[0][i], odd ? k[0][i] : k[1][i], 0, 0};
                            multiply(scores[half], w, q_low[i], q_high[i]);
                        }
                    }
                    // The warp's keys are in registers: their place takes what the keys weigh.
                    float* const shares = (float*)(memory + (stage - ring.base));
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        constexpr float SCALE = 0.125f * 1.4426950408889634f;
                        const float near = group < count ? scores[0][i] * SCALE : -1e30f;
                        const float far = group + 8 < count ? scores[1][i] * SCALE : -1e30f;
                        const float best = fmaxf(peak[i], most_over_groups(fmaxf(near, far)));
                        const float share = group < count ? power_of_two(near - best) : 0.0f;
                        const float other = group + 8 < count ? power_of_two(far - best) : 0.0f;
                        const float fade = power_of_two(peak[i] - best);
                        peak[i] = best;
                        weight[i] = weight[i] * fade + (share + other);
                        shares[group * 8 + 2 * quad + i] = share;
                        shares[(group + 8) * 8 + 2 * quad + i] = other;
                        if (group == 0) shared.fades[warp][2 * quad + i] = fade;
                    }
                    __syncwarp();
                    if (index) {
#pragma unroll
                        for (int head = 0; head < GROUP; head++) {
                            const float fade = shared.fades[warp][head];
                            totals[head][0] *= fade;
                            totals[head][1] *= fade;
                        }
                    }
#pragma unroll 4
                    for (int key = 0; key < 16; key++) {
                        const u32 v = key < count ? load_word(stage + PAGE * D * 2 + key * (D * 2) + lane * 4) : 0;
                        const float4* share = (const float4*)(shares + key * 8);
                        const float4 s0 = share[0], s1 = share[1];
                        const float s[8] = {s0.x, s0.y, s0.z, s0.w, s1.x, s1.y, s1.z, s1.w};
#pragma unroll
                        for (int head = 0; head < GROUP; head++) {
                            totals[head][0] += s[head] * low(v);
                            totals[head][1] += s[head] * high(v);
                        }
                    }
                }
                release_to_copies();
                __syncwarp();
                if (!last) {
                    ring.give_back(held[0], lane);
                    if (both) ring.give_back(held[1], lane);
                } else if (both) {
                    ring.give_back(held[1], lane);
                }
            }
            MARK(14);
            // The warps' sums are put together in a stage that nobody needs any more.
#pragma unroll
            for (int i = 0; i < 2; i++) {
#pragma unroll
                for (int distance = 4; distance < 32; distance <<= 1)
                    weight[i] += __shfl_xor_sync(~0u, weight[i], distance);
                if (group == 0) {
                    shared.peaks[warp][2 * quad + i] = peak[i];
                    shared.weights[warp][2 * quad + i] = weight[i];
                }
            }
            float* scratch = (float*)(memory + scratch_stage * STAGE);
            meet();
#pragma unroll
            for (int head = 0; head < GROUP; head++)
                *(float2*)(scratch + (warp * GROUP + head) * D + 2 * lane) =
                    make_float2(totals[head][0], totals[head][1]);
            meet();
            if (warp < GROUP) {
                float best = -1e30f, all = 0.0f, v0 = 0.0f, v1 = 0.0f;
#pragma unroll
                for (int i = 0; i < WARPS; i++) best = fmaxf(best, shared.peaks[i][warp]);
#pragma unroll 4
                for (int i = 0; i < WARPS; i++) {
                    const float factor = power_of_two(shared.peaks[i][warp] - best);
                    const float2 v = *(const float2*)(scratch + (i * GROUP + warp) * D + 2 * lane);
                    all += shared.weights[i][warp] * factor;
                    v0 += v.x * factor;
                    v1 += v.y * factor;
                }
                const float share = __fdividef(1.0f, all);
                const u64 pair = (u64)__float_as_uint(v1 * share) << 32 | __float_as_uint(v0 * share);
                const int at = (part * (QUERY / 2) + (key_head * GROUP + warp) * (D / 2) + lane) * 2;
                write_wide(exchange + PARTS + at, pair, tagged(__float_as_uint(best + logarithm(all)), tag));
            }
            release_to_copies();
            __syncwarp();
            ring.give_back(scratch_stage, lane);
            MARK(4);
        }
        // Parts of the attention put together, times the output's weights, into the residual stream.
        if (task.own >= 0) {
            FRESH();
            const int parts = task.parts;
            const u32 tag = task.step * 32 + layer + 1;
            MARK(5);
            u32 one, other;
            {
                const u64* from = exchange + PARTS + (warp * (8 * STEPS) + 2 * lane) * 2;
                const bool mine = lane < 4 * STEPS;
                u64 pairs[MOST_PARTS][2], stats[MOST_PARTS][2];
                u32 left = LONGEST_WAIT;
                bool ready;
                do {
                    ready = true;
#pragma unroll
                    for (int p = 0; p < MOST_PARTS; p++) {
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            pairs[p][i] = 0;
                            stats[p][i] = tagged(0xFF800000u, tag);
                            if (mine && p < parts) read_wide(from + (p * (QUERY / 2) + i) * 2, pairs[p][i], stats[p][i]);
                            ready = ready && has(stats[p][i], tag);
                        }
                    }
                } while (!all_ready(ready, left));
                u32 words[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float best = -1e30f, all = 0.0f, v0 = 0.0f, v1 = 0.0f;
#pragma unroll
                    for (int p = 0; p < MOST_PARTS; p++) best = fmaxf(best, __uint_as_float((u32)stats[p][i]));
#pragma unroll
                    for (int p = 0; p < MOST_PARTS; p++) {
                        const float factor = power_of_two(__uint_as_float((u32)stats[p][i]) - best);
                        all += factor;
                        v0 += factor * __uint_as_float((u32)pairs[p][i]);
                        v1 += factor * __uint_as_float((u32)(pairs[p][i] >> 32));
                    }
                    const float share = __fdividef(1.0f, all);
                    words[i] = mine ? pack(v0 * share, v1 * share) : 0;
                }
                one = words[0];
                other = words[1];
            }
            MARK(6);
            const float sum = eight_rows(ring.filled(), one, other, warp, lane);
            ring.release(lane);
            if (quad == 0) shared.sums[flip][group * WARPS + warp] = sum;
            meet();
            if (warp == 0) {
                const float residual = shared.residual[lane & 7] + sum_of(shared.sums[flip] + (lane & 7) * WARPS);
                if (lane < 8) shared.residual[lane] = residual;
                const float partner = __shfl_xor_sync(~0u, residual, 1);
                if (lane < 8 && !(lane & 1))
                    write_word(exchange + AFTER_OUT + task.own * 4 + (lane >> 1), pack(residual, partner), tag);
            }
            flip ^= 1;
        }
        MARK(7);
        // Gate and up: rows 0 to 7 of a tile are the gate's, 8 to 15 up's, of the same columns.
        {
            FRESH();
            const u32 tag = task.step * 32 + layer + 1;
            const int gated_count = task.gated_count;
            u32 one, other;
            read_row(exchange + AFTER_OUT, tag, warp, lane, one, other);
            MARK(8);
            u32 x[STEPS][2];
#pragma unroll
            for (int i = 0; i < STEPS; i++) {
                x[i][0] = __shfl_sync(~0u, one, 4 * i + quad);
                x[i][1] = __shfl_sync(~0u, other, 4 * i + quad);
            }
#pragma unroll 1
            for (int tile = 0; tile < gated_count; tile++) {
                float sums[2][4] = {};
                u32 w[FIRST_STEPS][4];
                u32 at = ring.filled() + warp * (FIRST_STEPS * 2 * UNIT) + lane * 16;
#pragma unroll
                for (int i = 0; i < FIRST_STEPS; i++) load(w[i], at + i * 2 * UNIT);
                ring.release(lane);
                at = ring.filled() + warp * ((STEPS - FIRST_STEPS) * 2 * UNIT) + lane * 16;
#pragma unroll
                for (int i = 0; i < FIRST_STEPS; i++) multiply(sums[i & 1], w[i], x[i][0], x[i][1]);
#pragma unroll
                for (int i = FIRST_STEPS; i < STEPS; i++) load(w[i - FIRST_STEPS], at + (i - FIRST_STEPS) * 2 * UNIT);
                ring.release(lane);
#pragma unroll
                for (int i = FIRST_STEPS; i < STEPS; i++)
                    multiply(sums[i & 1], w[i - FIRST_STEPS], x[i][0], x[i][1]);
                if (quad == 0) {
                    float* to = shared.sums[flip] + (tile * 16 + group) * WARPS + warp;
                    to[0] = sums[0][0] + sums[1][0];
                    to[8 * WARPS] = sums[0][2] + sums[1][2];
                }
            }
            note_squares(&shared.squares[flip][warp], one, other, lane);
            meet();
            MARK(9);
            if (warp < (gated_count + 1) / 2) {
                const float scale = inverse_root(sum_of(shared.squares[flip]) / HIDDEN + a.epsilon);
                const bool adds = threadIdx.x < 16 * gated_count;
                float value = adds ? sum_of(shared.sums[flip] + threadIdx.x * WARPS) * scale : 0.0f;
                const float up = __shfl_xor_sync(~0u, value, 8);
                value = __fdividef(value, 1.0f + power_of_two(-1.4426950408889634f * value)) * up;
                const float partner = __shfl_xor_sync(~0u, value, 1);
                if (adds && !(threadIdx.x & 9))
                    write_word(exchange + GATED + shared.gated[threadIdx.x], pack(value, partner), tag);
            }
            flip ^= 1;
        }
        MARK(10);
        // Down, into the residual stream.
        if (task.own >= 0) {
            FRESH();
            const u32 tag = task.step * 32 + layer + 1;
            u32 ones[DEEP_CHUNKS], others[DEEP_CHUNKS];
            {
                const u64* from = exchange + GATED + warp * (8 * DEEP) + 2 * lane;
                u32 left = LONGEST_WAIT;
                bool ready;
                do {
                    ready = true;
#pragma unroll
                    for (int chunk = 0; chunk < DEEP_CHUNKS; chunk++) {
                        u64 x = tagged(0, tag), y = tagged(0, tag);
                        if (32 * chunk + lane < 4 * DEEP) read_two(from + 64 * chunk, x, y);
                        ready = ready && has(x, tag) && has(y, tag);
                        ones[chunk] = (u32)x;
                        others[chunk] = (u32)y;
                    }
                } while (!all_ready(ready, left));
            }
            MARK(11);
            float sums[2][4] = {};
#pragma unroll
            for (int chunk = 0; chunk < DEEP_CHUNKS; chunk++) {
                constexpr int REST = DEEP - (DEEP_CHUNKS - 1) * DEEP_CHUNK;
                const int count = (chunk < DEEP_CHUNKS - 1 ? DEEP_CHUNK : REST) / 2;
                const u32 at = ring.filled() + warp * (count * 2 * UNIT) + lane * 16;
                u32 w[DEEP_CHUNK / 2][4];
#pragma unroll
                for (int i = 0; i < count; i++) load(w[i], at + i * 2 * UNIT);
                ring.release(lane);
#pragma unroll
                for (int i = 0; i < count; i++)
                    multiply(sums[i & 1], w[i], __shfl_sync(~0u, ones[chunk], source(i, lane)),
                             __shfl_sync(~0u, others[chunk], source(i, lane)));
            }
            if (quad == 0)
                shared.sums[flip][group * WARPS + warp] = (sums[0][0] + sums[0][3]) + (sums[1][0] + sums[1][3]);
            meet();
            MARK(12);
            if (warp == 0) {
                const float residual = shared.residual[lane & 7] + sum_of(shared.sums[flip] + (lane & 7) * WARPS);
                if (lane < 8) shared.residual[lane] = residual;
                const float partner = __shfl_xor_sync(~0u, residual, 1);
                if (layer == LAYERS - 1) {
                    if (lane < 8) write_word(exchange + LAST + task.own * 8 + lane, __float_as_uint(residual), tag);
                } else if (lane < 8 && !(lane & 1)) {
                    write_word(exchange + AFTER_DOWN + task.own * 4 + (lane >> 1), pack(residual, partner), tag);
                }
            }
            flip ^= 1;
        }
        MARK(13);
    }

    // The head, in float32: lane l < 28 has columns 4 l to 4 l + 3 of the warp's 112.
    {
        [[maybe_unused]] const int layer = LAYERS;
        FRESH();
        const u32 tag = shared.task.step * 32 + LAYERS;
        const bool mine = lane < 4 * STEPS;
        float x[4];
        MARK(0);
        {
            const u64* from = exchange + LAST + warp * (16 * STEPS) + 4 * lane;
            u32 left = LONGEST_WAIT;
            bool ready;
            do {
                u64 w[4] = {};
                if (mine) {
                    read_two(from, w[0], w[1]);
                    read_two(from + 2, w[2], w[3]);
                }
                ready = true;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    ready = ready && (!mine || has(w[i], tag));
                    x[i] = __uint_as_float((u32)w[i]);
                }
            } while (!all_ready(ready, left));
        }
        MARK(1);
        const float squares = warp_sum(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]);
        if (lane == 0) shared.squares[flip][warp] = squares;
        const int ids = plan.ids;
        float* sums = shared.sums[flip];
#pragma unroll 1
        for (int id = 0; id < ids; id += HEAD_ROWS) {
            const float* rows = (const float*)(memory + (ring.filled() - ring.base)) + warp * (16 * STEPS) + 4 * lane;
            float sum[HEAD_ROWS];
#pragma unroll
            for (int row = 0; row < HEAD_ROWS; row++) {
                const float4 w = mine ? *(const float4*)(rows + row * HIDDEN) : make_float4(0, 0, 0, 0);
                sum[row] = w.x * x[0] + w.y * x[1] + w.z * x[2] + w.w * x[3];
            }
            ring.release(lane);
#pragma unroll
            for (int row = 0; row < HEAD_ROWS; row++) {
                sum[row] = warp_sum(sum[row]);
                if (lane == 0 && id + row < ids) sums[(id + row) * WARPS + warp] = sum[row];
            }
        }
        meet();
        MARK(2);
        if (threadIdx.x < ids) {
            const float scale = inverse_root(sum_of(shared.squares[flip]) / HIDDEN + a.epsilon);
            const int id = plan.first_id + threadIdx.x;
            a.logits[id] = sum_of(sums + threadIdx.x * WARPS) * scale + a.head_bias[id];
        }
        // All programs have read the number of the step, or this one could not be here.
        if (blockIdx.x == 0 && threadIdx.x == 0) *a.epoch = shared.task.step + 1;
        MARK(3);
    }
}
