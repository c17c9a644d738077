// One decode step of the speech-token model for 1, 2, 4 or 8 rows, from the embeddings of their inputs
// to the logits, as one launch of one program per multiprocessor. Programs wait for each other, so all of
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
// Weights of a product are 8 rows by 16 columns to a unit of 256 bytes; warp w multiplies the w-th
// eighth of the columns, the sums of the warps are added in order. So a row's numbers are the same
// at every run.
//
// Constants by -D: ROWS, LAYERS, HIDDEN, MLP, HEADS, KEY_HEADS, IDS, STAGES, REGISTERS (of a thread, at most),
// MOST_TILES (of gate and up, of one program).

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS + 32;
constexpr int D = 64;
constexpr int PAGE = 64;
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
#ifndef UNDER_WAY
#define UNDER_WAY 2
#endif
constexpr int MOST_PARTS = ROWS <= 2 ? 4 : 2;
constexpr int PART_PAGES = ROWS <= 2 ? 2 : ROWS == 4 ? 3 : 6;
constexpr int MERGED_ROWS = 4 / MOST_PARTS;
constexpr int BUFFERS = ROWS == 1 ? 2 : 1;
constexpr int STATE_COLUMNS = 16;
constexpr long long LONGEST_WAIT = 10000000000;
static_assert(HIDDEN == STEPS * 128 && QUERY == HIDDEN && STEPS > FIRST_STEPS && STEPS <= 8, "width");
static_assert(MLP == DEEP * 128 && GROUP <= 8 && HIDDEN / 8 / 4 == 28, "shape");

// Exchange buffers, in words of 8 bytes.
constexpr int AFTER_DOWN = 0;
constexpr int AFTER_OUT = AFTER_DOWN + ROWS * HIDDEN / 2;
constexpr int PROJECTED = AFTER_OUT + ROWS * HIDDEN / 2;
constexpr int GATED = PROJECTED + ROWS * WIDTH / 2;
constexpr int LAST = GATED + ROWS * MLP / 2;
constexpr int PARTS = LAST + ROWS * HIDDEN;

struct Plan {
    long long weights;
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

// ---- shared memory -------------------------------------------------------------------------

struct Row {
    int slot;
    int position;
    int active;
    int input;
};

struct Shared {
    float sums[BUFFERS][MOST_TILES * 16 * ROWS * WARPS];
    float squares[BUFFERS][ROWS][WARPS];
    float shares[WARPS][8][8];
    float fades[WARPS][8];
    float peaks[WARPS][8];
    float weights[WARPS][8];
    u64 full[STAGES];
    u64 empty[STAGES];
    Row rows[ROWS];
};

__device__ __forceinline__ u32 address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ bool done(u32 barrier, u32 parity) {
    u32 result;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(result) : "r"(barrier), "r"(parity) : "memory");
    return result != 0;
}

__device__ __forceinline__ void wait_until_done(u32 barrier, u32 parity) {
    if (done(barrier, parity)) return;
    const long long began = clock64();
    while (!done(barrier, parity))
        if (clock64() - began > LONGEST_WAIT) asm volatile("trap;");
}

__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

__device__ __forceinline__ void release_to_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

struct Ring {
    u32 base;
    u32 full;
    u32 empty;
    int stage;
    u32 parity;
    int ahead;
    int seen;
    u32 seen_parity;

    __device__ __forceinline__ u32 place() const { return base + stage * STAGE; }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    // Readers.
    __device__ __forceinline__ u32 filled() {
#ifndef NO_RING
        wait_until_done(full + 8 * stage, parity);
#endif
        return place();
    }
    __device__ __forceinline__ void release(int lane) {
        __syncwarp();
#ifndef NO_RING
        if (lane == 0) arrive(empty + 8 * stage);
#endif
        next();
    }
    // The writer.
    __device__ __forceinline__ void fill(const unsigned char* from, u32 bytes, u64 policy, int lane) {
#ifndef NO_RING
        wait_until_done(empty + 8 * stage, parity ^ 1);
        // Copies under way fill the queues of the memory, behind which other programs' words wait.
        if (++ahead > UNDER_WAY) {
            wait_until_done(full + 8 * seen, seen_parity);
            if (++seen == STAGES) {
                seen = 0;
                seen_parity ^= 1;
            }
        }
        if (lane == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full + 8 * stage), "r"(bytes)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                "[%3], %4;" ::"r"(place()), "l"(from), "r"(bytes), "r"(full + 8 * stage), "l"(policy)
                : "memory");
        }
        __syncwarp();
#endif
        next();
    }
};

// ---- exchange ------------------------------------------------------------------------------

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

// Ends a wait that no other program will end: after about a second, or at once if one was ended
// before. The results are then wrong, and `fault` says which wait it was.
struct Patience {
    u32 left;
    u32* fault;

    __device__ __forceinline__ bool ends(u32 what) {
        if (left == 0) return true;
        if (--left) return false;
        atomicCAS(fault, 0u, what << 16 | blockIdx.x << 4 | threadIdx.x >> 5 | 1u << 31);
        return true;
    }
};

#ifdef NO_POLL
#define READY(condition) true
#else
#define READY(condition) (condition)
#endif

// ---- arithmetic ----------------------------------------------------------------------------

__device__ __forceinline__ void multiply(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load(u32 (&x)[2], u32 at) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(at) : "memory");
}

__device__ __forceinline__ void load(u32 (&x)[4], u32 at) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
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

__device__ __forceinline__ float sum_of(const float* parts) {
    float4 a = *(const float4*)parts, b = *(const float4*)(parts + 4);
    return ((((((a.x + a.y) + a.z) + a.w) + b.x) + b.y) + b.z) + b.w;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

#ifdef TRACE
#define MARK(number) \
    if (threadIdx.x == 0) a.trace[(blockIdx.x * (LAYERS + 1) + layer) * 16 + (number)] = clock64()
#else
#define MARK(number)
#endif

// From lanes that have four columns each in order to the lanes that multiply them.
template <int COUNT>
__device__ __forceinline__ void spread(u32 (&x)[COUNT][2], u32 one, u32 other, int lane) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        x[i][0] = __shfl_sync(~0u, one, 4 * i + (lane & 3));
        x[i][1] = __shfl_sync(~0u, other, 4 * i + (lane & 3));
    }
}

// The columns of one operand that lane (row n = lane / 4, quarter q = lane % 4) multiplies: of each
// of COUNT groups of 16 columns the four from 4 q on, in two words. from: the warp's columns of row 0.
template <int COUNT>
__device__ __forceinline__ void take(u32 (&x)[COUNT][2], const u64* from, int row_words, u32 tag, int lane,
                                     Patience& patience, u32 what) {
    if constexpr (ROWS == 1) {
        u32 one, other;
        const bool mine = lane < 4 * COUNT;
        while (true) {
            u64 a = 0, b = 0;
            if (mine) read_two(from + 2 * lane, a, b);
            one = (u32)a;
            other = (u32)b;
            if (__all_sync(~0u, READY(!mine || (has(a, tag) && has(b, tag))))) break;
            if (patience.ends(what)) break;
        }
        spread(x, one, other, lane);
    } else {
        const bool mine = (lane >> 2) < ROWS;
        const u64* at = from + (lane >> 2) * row_words + 2 * (lane & 3);
        while (true) {
            bool ready = true;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                u64 a = 0, b = 0;
                if (mine) {
                    read_two(at + 8 * i, a, b);
                    ready = ready && has(a, tag) && has(b, tag);
                }
                x[i][0] = (u32)a;
                x[i][1] = (u32)b;
            }
            if (__all_sync(~0u, READY(ready))) break;
            if (patience.ends(what)) break;
        }
    }
}

// Sums of squares of the rows' columns in this warp.
__device__ __forceinline__ void note_squares(float (&squares)[ROWS][WARPS], const u32 (&x)[STEPS][2], int warp,
                                             int lane) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
#pragma unroll
        for (int k = 0; k < 2; k++) sum += low(x[i][k]) * low(x[i][k]) + high(x[i][k]) * high(x[i][k]);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (!(lane & 3) && (lane >> 2) < ROWS) squares[lane >> 2][warp] = sum;
}

// Row lane / 4 of a tile times rows 2 q and 2 q + 1.
__device__ __forceinline__ void note_sums(float* sums, int row, float one, float other, int warp, int lane) {
    const int n = 2 * (lane & 3);
    float* to = sums + (row * ROWS + n) * WARPS + warp;
    if (n < ROWS) to[0] = one;
    if (n + 1 < ROWS) to[WARPS] = other;
}

// Products of a tile of 8 rows with this warp's columns.
__device__ __forceinline__ void eight_rows(float* sums, int tile, u32 stage, const u32 (&x)[STEPS][2], int warp,
                                           int lane) {
    float parts[2][4] = {};
    u32 at = stage + warp * (STEPS * UNIT) + lane * 8;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        u32 w[2];
        load(w, at + i * UNIT);
        multiply(parts[i & 1], w[0], 0, w[1], 0, x[i][0], x[i][1]);
    }
    note_sums(sums, tile * 8 + (lane >> 2), parts[0][0] + parts[1][0], parts[0][1] + parts[1][1], warp, lane);
}

// A chunk of a tile of down.
template <int COUNT>
__device__ __forceinline__ void deep_chunk(float (&sums)[2][4], u32 stage, const u32 (&x)[COUNT][2], int warp,
                                           int lane) {
    u32 at = stage + warp * (COUNT * UNIT) + lane * 8;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        u32 w[2];
        load(w, at + i * UNIT);
        multiply(sums[i & 1], w[0], 0, w[1], 0, x[i][0], x[i][1]);
    }
}

// After sums have been read: with one buffer nobody may write the next ones before.
__device__ __forceinline__ void turn(int& flip) {
    if constexpr (BUFFERS == 2) flip ^= 1; else meet();
}

__device__ __forceinline__ void meet_all() { asm volatile("bar.sync 2, 288;" ::: "memory"); }

__device__ __forceinline__ int pages_of(int position) { return position / PAGE + 1; }
__device__ __forceinline__ int parts_of(int position) {
    return min(MOST_PARTS, (pages_of(position) + PART_PAGES - 1) / PART_PAGES);
}

// The part of the attention that a program of this rank takes: of one row, one key head, the pages
// part, part + parts and so on; pages is 0 where there is none.
struct Unit {
    int row, key_head, part, parts, pages;

    __device__ __forceinline__ Unit(const Row* rows, int rank) : row(0), key_head(0), part(0), parts(1), pages(0) {
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            const int count = parts_of(rows[n].position);
            if (rank >= 0 && rank < KEY_HEADS * count) {
                row = n;
                key_head = rank / count;
                part = rank % count;
                parts = count;
                pages = (pages_of(rows[n].position) - part + count - 1) / count;
            }
            rank -= KEY_HEADS * count;
        }
    }
};

extern "C" __global__ void __maxnreg__(REGISTERS) one_launch(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared& shared = *(Shared*)(memory + STAGES * STAGE);
    const Plan& plan = a.plans[blockIdx.x];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    Ring ring{address(memory), address(shared.full), address(shared.empty), 0, 0, 0, 0, 0};
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.full + 8 * stage));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ring.empty + 8 * stage), "r"(WARPS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int rank = plan.rank, own = plan.own, heads_count = plan.heads_count, gated_count = plan.gated_count;

    if (warp == WARPS) {
        u64 once, again;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(again));
        const unsigned char* from = a.weights + plan.weights;
        for (int tile = 0; tile < heads_count; tile++, from += TILE) ring.fill(from, TILE, once, lane);
        meet_all();
        const Unit unit(shared.rows, rank);
        int mine[4 / MOST_PARTS];
#pragma unroll
        for (int i = 0; i < 4 / MOST_PARTS; i++) {
            const int index = lane + 32 * i;
            mine[i] = 0;
            if (index < unit.pages) {
                const Row& row = shared.rows[unit.row];
                mine[i] = a.pages[(long long)row.slot * a.most_pages + unit.part + index * unit.parts] * row.active;
            }
        }
        for (int layer = 0; layer < LAYERS; layer++) {
            for (int tile = 0; layer && tile < heads_count; tile++, from += TILE) ring.fill(from, TILE, once, lane);
            for (int index = 0; index < unit.pages; index++) {
                int page = __shfl_sync(~0u, mine[0], index & 31);
                if (MOST_PARTS < 4 && index >= 32) page = __shfl_sync(~0u, mine[4 / MOST_PARTS - 1], index & 31);
                const unsigned char* block =
                    a.cache + layer * a.layer_bytes + ((long long)page * KEY_HEADS + unit.key_head) * (2 * PAGE * D * 2);
                ring.fill(block, 2 * PAGE * D * 2, again, lane);
            }
            if (own >= 0) {
                ring.fill(from, TILE, once, lane);
                from += TILE;
            }
            constexpr int FIRST = FIRST_STEPS * WARPS * 2 * UNIT, SECOND = 2 * TILE - FIRST;
            for (int tile = 0; tile < gated_count; tile++, from += 2 * TILE) {
                ring.fill(from, FIRST, once, lane);
                ring.fill(from + FIRST, SECOND, once, lane);
            }
            if (own >= 0) {
                for (int chunk = 0; chunk < DEEP_CHUNKS; chunk++) {
                    int bytes = min(DEEP_CHUNK, DEEP - chunk * DEEP_CHUNK) * WARPS * UNIT;
                    ring.fill(from, bytes, once, lane);
                    from += bytes;
                }
            }
        }
        for (int id = 0; id < plan.ids; id += HEAD_ROWS) {
            int bytes = min(HEAD_ROWS, plan.ids - id) * HIDDEN * 4;
            ring.fill(from, bytes, once, lane);
            from += bytes;
        }
        return;
    }

    if (threadIdx.x < ROWS) {
        const int slot = a.rows[threadIdx.x];
        const int* state = a.state + slot * STATE_COLUMNS;
        const int active = state[2];
        shared.rows[threadIdx.x] = Row{slot, active ? state[0] : 0, active, state[1]};
    }
    const u32 step = *(volatile u32*)a.epoch;
    meet_all();
    const Unit unit(shared.rows, rank);
    Patience patience{1u << 21, a.fault};
    const int group = lane >> 2, quad = lane & 3;
    int flip = 0;

    // What this thread adds up: eight_rows' tiles by row of the tile, row of the batch, tile.
    const int n_of = (threadIdx.x >> 3) % ROWS, tile_of = (threadIdx.x >> 3) / ROWS, row_of = threadIdx.x & 7;
    const Row& my_row = shared.rows[n_of];
    const int heads_row = tile_of < heads_count ? plan.heads[tile_of] * 8 + row_of : -1;
    float cosine = 1.0f, sine = 0.0f;
    if (heads_row >= 0 && heads_row < QUERY + KEY_HEADS * D) {
        int at = my_row.position * (D / 2) + (heads_row >> 1) % (D / 2);
        cosine = a.cosines[at];
        sine = a.sines[at];
        if (!(heads_row & 1)) sine = -sine;
    }
    float residual = 0.0f;
    if (own >= 0 && tile_of == 0) {
        u32 word = a.table[(long long)my_row.input * (HIDDEN / 2) + own * 4 + (row_of >> 1)];
        residual = row_of & 1 ? high(word) : low(word);
    }

    for (int layer = 0; layer < LAYERS; layer++) {
        const u32 tag = step * 32 + layer + 1;
        u32 x[STEPS][2];
        MARK(0);
        // Queries, keys and values.
        if (heads_count) {
            float bias = heads_row >= 0 ? a.bias[layer * WIDTH + heads_row] : 0.0f;
            if (layer == 0) {
                const u32* from = a.table + (long long)shared.rows[min(group, ROWS - 1)].input * (HIDDEN / 2) +
                                  warp * (8 * STEPS) + 2 * quad;
#pragma unroll
                for (int i = 0; i < STEPS; i++) {
                    const uint2 words = *(const uint2*)(from + 8 * i);
                    x[i][0] = words.x;
                    x[i][1] = words.y;
                }
            } else {
                take(x, a.exchange + AFTER_DOWN + warp * (8 * STEPS), HIDDEN / 2, tag - 1, lane, patience, 1);
            }
            MARK(1);
            note_squares(shared.squares[flip], x, warp, lane);
            for (int tile = 0; tile < heads_count; tile++) {
                eight_rows(shared.sums[flip], tile, ring.filled(), x, warp, lane);
                ring.release(lane);
            }
            meet();
            if (warp < (heads_count * ROWS + 3) / 4) {
                float scale = rsqrtf(sum_of(shared.squares[flip][n_of]) / HIDDEN + a.epsilon);
                float value = 0.0f;
                if (heads_row >= 0)
                    value = sum_of(shared.sums[flip] + ((tile_of * 8 + row_of) * ROWS + n_of) * WARPS) * scale + bias;
                float partner = __shfl_xor_sync(~0u, value, 1);
                value = value * cosine + partner * sine;
                partner = __shfl_xor_sync(~0u, value, 1);
                if (heads_row >= 0 && !(heads_row & 1)) {
                    u32 word = pack(value, partner);
                    write_word(a.exchange + PROJECTED + n_of * (WIDTH / 2) + (heads_row >> 1), word, tag);
                    if (heads_row >= QUERY) {
                        const int behind = heads_row - QUERY, is_value = behind / (KEY_HEADS * D);
                        const int head = behind % (KEY_HEADS * D) / D, place = my_row.position;
                        int page = a.pages[(long long)my_row.slot * a.most_pages + place / PAGE] * my_row.active;
                        long long block = ((long long)page * KEY_HEADS + head) * 2 + is_value;
                        long long at = (block * PAGE + place % PAGE) * D + behind % D;
                        *(u32*)(a.cache + layer * a.layer_bytes + at * 2) = word;
                    }
                }
            }
            turn(flip);
        }
        MARK(2);
        // Attention of one key head to the pages part, part + parts, ...
        if (unit.pages) {
            const int position = shared.rows[unit.row].position;
            const u64* projected = a.exchange + PROJECTED + unit.row * (WIDTH / 2);
            u32 q_low[4], q_high[4];
            const u64* from = projected + (unit.key_head * GROUP + min(group, GROUP - 1)) * (D / 2) + 4 * quad;
            while (true) {
                u64 w[8];
                read_two(from, w[0], w[1]);
                read_two(from + 2, w[2], w[3]);
                read_two(from + 16, w[4], w[5]);
                read_two(from + 18, w[6], w[7]);
                bool ready = true;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    q_low[i] = (u32)w[i];
                    q_high[i] = (u32)w[i + 4];
                    ready = ready && has(w[i], tag) && has(w[i + 4], tag);
                }
                if (__all_sync(~0u, READY(ready))) break;
                if (patience.ends(2)) break;
            }
            MARK(3);
            float peak[2] = {-1e30f, -1e30f}, weight[2] = {0.0f, 0.0f}, totals[GROUP][2] = {};
            u32 stage = 0;
            for (int index = 0; index < unit.pages; index++) {
                const int first = (unit.part + index * unit.parts) * PAGE + warp * 8;
                const int count = min(8, position + 1 - first);
                stage = ring.filled() + warp * (8 * D * 2);
                if (count > 0) {
                    const int newest = position - first;
                    if (newest < 8) {
                        const u64* key = projected + QUERY / 2 + unit.key_head * (D / 2) + lane;
                        while (true) {
                            u64 k = read_one(key), v = read_one(key + KEY_HEADS * D / 2);
                            bool ready = __all_sync(~0u, READY(has(k, tag) && has(v, tag))) || patience.ends(3);
                            if (ready) {
                                store_word(stage + newest * (D * 2) + lane * 4, (u32)k);
                                store_word(stage + PAGE * D * 2 + newest * (D * 2) + lane * 4, (u32)v);
                                break;
                            }
                        }
                        __syncwarp();
                    }
                    // Two reads of 16 bytes, in an order in which the 8 rows of 128 bytes use all banks.
                    u32 k_one[4], k_other[4];
                    const int odd = group & 1;
                    load(k_one, stage + group * (D * 2) + (quad + 4 * odd) * 16);
                    load(k_other, stage + group * (D * 2) + (quad + 4 - 4 * odd) * 16);
                    float scores[4] = {};
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        multiply(scores, odd ? k_other[i] : k_one[i], 0, odd ? k_one[i] : k_other[i], 0, q_low[i],
                                 q_high[i]);
                    }
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float score = group < count ? scores[i] * (0.125f * 1.4426950408889634f) : -1e30f;
                        float best = score;
#pragma unroll
                        for (int distance = 4; distance < 32; distance <<= 1)
                            best = fmaxf(best, __shfl_xor_sync(~0u, best, distance));
                        best = fmaxf(best, peak[i]);
                        float share = group < count ? exp2f(score - best) : 0.0f;
                        float fade = exp2f(peak[i] - best);
                        peak[i] = best;
                        weight[i] = weight[i] * fade + share;
                        shared.shares[warp][group][2 * quad + i] = share;
                        if (group == 0) shared.fades[warp][2 * quad + i] = fade;
                    }
                    __syncwarp();
#pragma unroll
                    for (int head = 0; head < GROUP; head++) {
                        float fade = shared.fades[warp][head];
                        totals[head][0] *= fade;
                        totals[head][1] *= fade;
                    }
                    for (int key = 0; key < count; key++) {
                        u32 v = load_word(stage + PAGE * D * 2 + key * (D * 2) + lane * 4);
                        float v0 = low(v), v1 = high(v);
                        const float4* share = (const float4*)shared.shares[warp][key];
                        float4 s0 = share[0], s1 = share[1];
                        float s[8] = {s0.x, s0.y, s0.z, s0.w, s1.x, s1.y, s1.z, s1.w};
#pragma unroll
                        for (int head = 0; head < GROUP; head++) {
                            totals[head][0] += s[head] * v0;
                            totals[head][1] += s[head] * v1;
                        }
                    }
                    __syncwarp();
                }
                if (index + 1 < unit.pages) {
                    release_to_copies();
                    ring.release(lane);
                }
            }
            // The warps' sums are put together in the last stage, which nobody needs any more.
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
            float* scratch = (float*)(memory + ring.stage * STAGE);
            meet();
#pragma unroll
            for (int head = 0; head < GROUP; head++)
                *(float2*)(scratch + (warp * GROUP + head) * D + 2 * lane) = make_float2(totals[head][0], totals[head][1]);
            meet();
            if (warp < GROUP) {
                float best = -1e30f, all = 0.0f, v0 = 0.0f, v1 = 0.0f;
#pragma unroll
                for (int i = 0; i < WARPS; i++) best = fmaxf(best, shared.peaks[i][warp]);
#pragma unroll
                for (int i = 0; i < WARPS; i++) {
                    float factor = exp2f(shared.peaks[i][warp] - best);
                    float2 v = *(float2*)(scratch + (i * GROUP + warp) * D + 2 * lane);
                    all += shared.weights[i][warp] * factor;
                    v0 += v.x * factor;
                    v1 += v.y * factor;
                }
                u64 pair = (u64)__float_as_uint(v1 / all) << 32 | __float_as_uint(v0 / all);
                int at = ((unit.row * MOST_PARTS + unit.part) * (QUERY / 2) + (unit.key_head * GROUP + warp) * (D / 2) + lane) * 2;
                write_wide(a.exchange + PARTS + at, pair, tagged(__float_as_uint(best + log2f(all)), tag));
            }
            release_to_copies();
            ring.release(lane);
            MARK(4);
        }
        // Parts of the attention put together, times the output's weights, into the residual stream.
        if (own >= 0) {
            MARK(5);
            const bool mine = lane < 4 * STEPS;
#pragma unroll 1
            for (int first = 0; first < ROWS; first += MERGED_ROWS) {
                u64 pairs[MERGED_ROWS][MOST_PARTS][2], stats[MERGED_ROWS][MOST_PARTS][2];
                while (true) {
                    bool ready = true;
#pragma unroll
                    for (int n = 0; n < MERGED_ROWS; n++) {
                        const u64* from = a.exchange + PARTS +
                                          ((first + n) * MOST_PARTS * (QUERY / 2) + warp * (8 * STEPS) + 2 * lane) * 2;
                        const int parts = parts_of(shared.rows[first + n].position);
#pragma unroll
                        for (int p = 0; p < MOST_PARTS; p++) {
#pragma unroll
                            for (int i = 0; i < 2; i++) {
                                pairs[n][p][i] = 0;
                                stats[n][p][i] = (u64)tag << 32 | 0xFF800000u;
                                if (mine && p < parts) read_wide(from + (p * (QUERY / 2) + i) * 2, pairs[n][p][i], stats[n][p][i]);
                                ready = ready && has(stats[n][p][i], tag);
                            }
                        }
                    }
                    if (__all_sync(~0u, READY(ready))) break;
                    if (patience.ends(4)) break;
                }
#pragma unroll
                for (int n = 0; n < MERGED_ROWS; n++) {
                    u32 words[2];
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        float best = -1e30f, all = 0.0f, v0 = 0.0f, v1 = 0.0f;
#pragma unroll
                        for (int p = 0; p < MOST_PARTS; p++)
                            best = fmaxf(best, __uint_as_float((u32)stats[n][p][i]));
#pragma unroll
                        for (int p = 0; p < MOST_PARTS; p++) {
                            float factor = exp2f(__uint_as_float((u32)stats[n][p][i]) - best);
                            all += factor;
                            v0 += factor * __uint_as_float((u32)pairs[n][p][i]);
                            v1 += factor * __uint_as_float((u32)(pairs[n][p][i] >> 32));
                        }
                        words[i] = pack(v0 / all, v1 / all);
                    }
                    u32 part_of[STEPS][2];
                    spread(part_of, words[0], words[1], lane);
#pragma unroll
                    for (int i = 0; i < STEPS; i++) {
#pragma unroll
                        for (int k = 0; k < 2; k++)
                            if (ROWS == 1 || group == first + n) x[i][k] = part_of[i][k];
                    }
                }
            }
            MARK(6);
            eight_rows(shared.sums[flip], 0, ring.filled(), x, warp, lane);
            ring.release(lane);
            meet();
            if (warp < (ROWS + 3) / 4) {
                if (tile_of == 0) residual += sum_of(shared.sums[flip] + (row_of * ROWS + n_of) * WARPS);
                float partner = __shfl_xor_sync(~0u, residual, 1);
                if (tile_of == 0 && !(row_of & 1))
                    write_word(a.exchange + AFTER_OUT + n_of * (HIDDEN / 2) + own * 4 + (row_of >> 1),
                               pack(residual, partner), tag);
            }
            turn(flip);
        }
        MARK(7);
        // Gate and up: rows 0 to 7 of a tile are the gate's, 8 to 15 up's, of the same columns.
        {
            take(x, a.exchange + AFTER_OUT + warp * (8 * STEPS), HIDDEN / 2, tag, lane, patience, 5);
            MARK(8);
            note_squares(shared.squares[flip], x, warp, lane);
            for (int tile = 0; tile < gated_count; tile++) {
                float sums[4][4] = {};
                u32 at = ring.filled() + warp * (FIRST_STEPS * 2 * UNIT) + lane * 16;
#pragma unroll
                for (int i = 0; i < FIRST_STEPS; i++) {
                    u32 w[4];
                    load(w, at + i * 2 * UNIT);
                    multiply(sums[i], w[0], w[2], w[1], w[3], x[i][0], x[i][1]);
                }
                ring.release(lane);
                at = ring.filled() + warp * ((STEPS - FIRST_STEPS) * 2 * UNIT) + lane * 16;
#pragma unroll
                for (int i = FIRST_STEPS; i < STEPS; i++) {
                    u32 w[4];
                    load(w, at + (i - FIRST_STEPS) * 2 * UNIT);
                    multiply(sums[i - FIRST_STEPS], w[0], w[2], w[1], w[3], x[i][0], x[i][1]);
                }
                ring.release(lane);
#pragma unroll
                for (int k = 0; k < 4; k++) sums[0][k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
                note_sums(shared.sums[flip], tile * 16 + group, sums[0][0], sums[0][1], warp, lane);
                note_sums(shared.sums[flip], tile * 16 + 8 + group, sums[0][2], sums[0][3], warp, lane);
            }
            meet();
            MARK(9);
            for (int base = warp * 32; base < gated_count * 16 * ROWS; base += 32 * WARPS) {
                const int index = base + lane, row = index & 15, n = (index >> 4) % ROWS, tile = (index >> 4) / ROWS;
                const bool mine = tile < gated_count;
                float scale = rsqrtf(sum_of(shared.squares[flip][n]) / HIDDEN + a.epsilon);
                float value = mine ? sum_of(shared.sums[flip] + ((tile * 16 + row) * ROWS + n) * WARPS) * scale : 0.0f;
                float up = __shfl_xor_sync(~0u, value, 8);
                value = value / (1.0f + __expf(-value)) * up;
                float partner = __shfl_xor_sync(~0u, value, 1);
                if (mine && !(row & 9))
                    write_word(a.exchange + GATED + n * (MLP / 2) + plan.gated[tile] * 4 + (row >> 1),
                               pack(value, partner), tag);
            }
            turn(flip);
        }
        MARK(10);
        // Down, into the residual stream.
        if (own >= 0) {
            const u64* from = a.exchange + GATED + warp * (8 * DEEP);
            u32 ones[DEEP_CHUNKS], others[DEEP_CHUNKS];
            if constexpr (ROWS == 1) {
                while (true) {
                    bool ready = true;
#pragma unroll
                    for (int chunk = 0; chunk < DEEP_CHUNKS; chunk++) {
                        u64 one = 0, other = 0;
                        if (32 * chunk + lane < 4 * DEEP) {
                            read_two(from + 64 * chunk + 2 * lane, one, other);
                            ready = ready && has(one, tag) && has(other, tag);
                        }
                        ones[chunk] = (u32)one;
                        others[chunk] = (u32)other;
                    }
                    if (__all_sync(~0u, READY(ready))) break;
                    if (patience.ends(6)) break;
                }
            }
            MARK(11);
            float sums[2][4] = {};
#pragma unroll
            for (int chunk = 0; chunk < DEEP_CHUNKS; chunk++) {
                constexpr int REST = DEEP - (DEEP_CHUNKS - 1) * DEEP_CHUNK;
                if (chunk < DEEP_CHUNKS - 1) {
                    u32 y[DEEP_CHUNK][2];
                    if constexpr (ROWS == 1) spread(y, ones[chunk], others[chunk], lane);
                    else take(y, from + 64 * chunk, MLP / 2, tag, lane, patience, 6);
                    deep_chunk(sums, ring.filled(), y, warp, lane);
                } else {
                    u32 y[REST][2];
                    if constexpr (ROWS == 1) spread(y, ones[chunk], others[chunk], lane);
                    else take(y, from + 64 * chunk, MLP / 2, tag, lane, patience, 6);
                    deep_chunk(sums, ring.filled(), y, warp, lane);
                }
                ring.release(lane);
            }
            note_sums(shared.sums[flip], group, sums[0][0] + sums[1][0], sums[0][1] + sums[1][1], warp, lane);
            meet();
            MARK(12);
            if (warp < (ROWS + 3) / 4) {
                if (tile_of == 0) residual += sum_of(shared.sums[flip] + (row_of * ROWS + n_of) * WARPS);
                float partner = __shfl_xor_sync(~0u, residual, 1);
                if (layer == LAYERS - 1) {
                    if (tile_of == 0)
                        write_word(a.exchange + LAST + n_of * HIDDEN + own * 8 + row_of, __float_as_uint(residual), tag);
                } else if (tile_of == 0 && !(row_of & 1)) {
                    write_word(a.exchange + AFTER_DOWN + n_of * (HIDDEN / 2) + own * 4 + (row_of >> 1),
                               pack(residual, partner), tag);
                }
            }
            turn(flip);
        }
        MARK(13);
    }

    // The head, in float32: lane l < 28 has columns 4 l to 4 l + 3 of the warp's 112.
    {
        const int layer = LAYERS;
        const u32 tag = step * 32 + LAYERS;
        const bool mine = lane < 4 * STEPS;
        float x[ROWS][4];
        MARK(0);
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            const u64* from = a.exchange + LAST + n * HIDDEN + warp * (16 * STEPS) + 4 * lane;
            while (true) {
                u64 w[4] = {};
                if (mine) {
                    read_two(from, w[0], w[1]);
                    read_two(from + 2, w[2], w[3]);
                }
                bool ready = true;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    ready = ready && (!mine || has(w[i], tag));
                    x[n][i] = __uint_as_float((u32)w[i]);
                }
                if (__all_sync(~0u, READY(ready))) break;
                if (patience.ends(7)) break;
            }
        }
        MARK(1);
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            float squares = warp_sum(x[n][0] * x[n][0] + x[n][1] * x[n][1] + x[n][2] * x[n][2] + x[n][3] * x[n][3]);
            if (lane == 0) shared.squares[flip][n][warp] = squares;
        }
        const int ids = plan.ids;
        float* sums = shared.sums[flip];
        for (int id = 0; id < ids; id += HEAD_ROWS) {
            const float* rows = (const float*)(memory + (ring.filled() - ring.base)) + warp * (16 * STEPS) + 4 * lane;
#pragma unroll
            for (int row = 0; row < HEAD_ROWS; row++) {
                float4 w = mine ? *(const float4*)(rows + row * HIDDEN) : make_float4(0, 0, 0, 0);
#pragma unroll
                for (int n = 0; n < ROWS; n++) {
                    float sum = warp_sum(w.x * x[n][0] + w.y * x[n][1] + w.z * x[n][2] + w.w * x[n][3]);
                    if (lane == 0 && id + row < ids) sums[((id + row) * ROWS + n) * WARPS + warp] = sum;
                }
            }
            ring.release(lane);
        }
        meet();
        MARK(2);
        for (int index = threadIdx.x; index < ids * ROWS; index += 32 * WARPS) {
            const int n = index % ROWS, id = plan.first_id + index / ROWS;
            float scale = rsqrtf(sum_of(shared.squares[flip][n]) / HIDDEN + a.epsilon);
            a.logits[(long long)n * IDS + id] = sum_of(sums + index * WARPS) * scale + a.head_bias[id];
        }
        // All programs have read the number of the step, or this one could not be here.
        if (blockIdx.x == 0 && threadIdx.x == 0) *a.epoch = step + 1;
        MARK(3);
    }
}
