// Consecutive transformer layers of the flow's U-Net in one launch of thread-block clusters (sm_90a).
//
// A cluster of 16 CTAs computes one guidance row of one unit: 8 heads times 2 groups of 25 frames.
// A CTA computes queries, keys and values of its head for its frames, attention, what the head adds
// to the residual stream, and 128 hidden channels of the feed-forward. Products are transposed,
// D [channels, frames] = weights [channels, K] x activations [K, frames], by wgmma m64n32k16.
// Partial sums of the 8 CTAs of a group are exchanged through distributed shared memory: frame r is
// summed, in the order of the CTAs, and normalised by CTA r % 8, which keeps its residual stream in
// registers, and sends the normalised frame to all 8. Remote stores count their bytes on an mbarrier
// of the receiver. Weights arrive in the order of their use through a ring of bulk copies.

typedef unsigned int u32;
typedef unsigned long long u64;

namespace {

constexpr int HEADS = 8, WIDTH = 64, INNER = HEADS * WIDTH, CHANNELS = 256, FRAMES = 50, OWN_FRAMES = 25;
constexpr int MOST_PAGES = 8, WARPS = 16, CONSUMERS = 32 * WARPS;
constexpr int TILES = 4;                    // of 8 frames, in a group
constexpr int STAGES = 4, STAGE = 16384;    // of the ring of weights
constexpr int BIASES = 3 * INNER + CHANNELS + 4 * CHANNELS + CHANNELS;
constexpr int LAYERS = 4, RESNET = 7 * CHANNELS, LEVEL = RESNET + LAYERS * BIASES;  // floats of a level
constexpr int SLICE = CHANNELS / HEADS, STEP = 34 * 16;  // input channels of a CTA in a convolution
constexpr int ACTIVATIONS_BYTES = 8 * STEP;
constexpr int QKV_CHUNKS = 8, OUT_CHUNKS = 2, WIDEN_CHUNKS = 4, NARROW_CHUNKS = 4;
constexpr int QKV_BYTES = 12288;
constexpr int KEY_BLOCK = FRAMES * WIDTH * 2;  // bytes of a page's keys of one head

// Offsets in shared memory.
constexpr int RING = 0;
constexpr int KEYS = RING + STAGES * STAGE, VALUES = KEYS + MOST_PAGES * KEY_BLOCK;  // of all pages, the own last
constexpr int XN = VALUES + MOST_PAGES * KEY_BLOCK;      // normalised frames; later shares of attention
constexpr int HIDDEN = XN + CHANNELS * TILES * 16;
constexpr int SHARES = XN;                               // [50 x 8 keys] x 32 frames: 25,600 bytes
constexpr int QUERIES = SHARES + 25600, ATTENDED = QUERIES;
constexpr int RECEIVED = QUERIES + WIDTH * TILES * 16;
constexpr int MOMENTS = RECEIVED + 8 * 2048, HIGHEST = MOMENTS + 1024, SUMS = HIGHEST + 16 * 104;
constexpr int BARRIERS = SUMS + 16 * 104;
constexpr int FULL = BARRIERS, EMPTY = FULL + 8 * STAGES, X_BAR = EMPTY + 8 * STAGES, R_BAR = X_BAR + 8, KV_BAR = R_BAR + 8;
constexpr int D_BAR = KV_BAR + 8, S_BAR = D_BAR + 8, A_BAR = S_BAR + 8;
constexpr int PAGE_IDS = A_BAR + 24;
constexpr int MAIL = PAGE_IDS + 32, SHARED_BYTES = MAIL + 3 * 256;
// During a resnet, where past keys and values lie in attention.
constexpr int ACTIVATIONS = KEYS, SHORTCUTS = ACTIVATIONS + 3 * ACTIVATIONS_BYTES;
static_assert(FULL % 8 == 0 && SHORTCUTS + 8 * 2048 <= VALUES, "places");
static_assert(MAIL % 16 == 0 && SHORTCUTS % 16 == 0, "alignment");
static_assert(SHARED_BYTES <= 232448, "shared memory of a CTA");
static_assert(HIDDEN + 8192 <= QUERIES, "hidden channels and shares");

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
__device__ __forceinline__ float low(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high(u32 both) { return __uint_as_float(both & 0xffff0000u); }

__device__ __forceinline__ void store4(u32 at, u32 v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
__device__ __forceinline__ u32 load4(u32 at) {
    u32 v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ float loadf(u32 at) { return __uint_as_float(load4(at)); }
__device__ __forceinline__ void storef(u32 at, float v) { store4(at, __float_as_uint(v)); }
__device__ __forceinline__ float2 loadf2(u32 at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
__device__ __forceinline__ u32 remote(u32 at, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    return there;
}
__device__ __forceinline__ void send4(u32 to, u32 a, u32 bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(a), "r"(bar) : "memory");
}
__device__ __forceinline__ void send16(u32 to, u32 a, u32 b, u32 c, u32 d, u32 bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "r"(a), "r"(b),
                 "r"(c), "r"(d), "r"(bar)
                 : "memory");
}
__device__ __forceinline__ void init(u32 bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
__device__ __forceinline__ void expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra ready;\nbra again;\nready:\n}" ::"r"(bar), "r"(parity)
        : "memory");
}
__device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ void sync() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory"); }
__device__ __forceinline__ void async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void matrices4(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void transposed4(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Matrices lie in shared memory as blocks of 8 rows x 8 columns (128 bytes), block (row / 8, column / 8)
// at (column / 8) * step + (row / 8) * 128.
// Addresses in a cluster have the rank of the CTA in their highest byte, descriptors have not.
__device__ __forceinline__ u32 described(u32 at, u32 step) { return (at & 0x3ffff) >> 4 | step >> 4 << 16; }

// acc (+)= the warpgroup's 64 channels of 16 columns of weights times activations [32 frames].
__device__ __forceinline__ void multiply(float (&acc)[TILES][4], u32 weights, u32 activations, int begun) {
    asm volatile(
        "{\n.reg .b64 a, b;\n.reg .pred p;\nmov.b64 a, {%16, 8};\nmov.b64 b, {%17, 8};\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, a, b, p, 1, 1, 0, 0;\n}"
        : "+f"(acc[0][0]), "+f"(acc[0][1]), "+f"(acc[0][2]), "+f"(acc[0][3]), "+f"(acc[1][0]), "+f"(acc[1][1]),
          "+f"(acc[1][2]), "+f"(acc[1][3]), "+f"(acc[2][0]), "+f"(acc[2][1]), "+f"(acc[2][2]), "+f"(acc[2][3]),
          "+f"(acc[3][0]), "+f"(acc[3][1]), "+f"(acc[3][2]), "+f"(acc[3][3])
        : "r"(weights), "r"(activations), "r"(begun));
}

// The place of the next chunk of weights.
struct Ring {
    u32 slot = 0, parity = 0;
    __device__ __forceinline__ void next() {
        slot = (slot + 1) % STAGES;
        parity ^= slot == 0;
    }
};

// Brings the weights of an Euler step chunk by chunk, in the order of their use. For one thread.
struct Feeder {
    const char* from;
    const u32* sizes;  // of the chunks, zero behind the last
    u32 bytes;
    const char* last;  // place of the last chunk whose weights this CTA has the second cache fetch ahead

    __device__ __forceinline__ void bring(u32 base, u32 slot) {
        if (bytes == 0) return;
        expect(base + FULL + 8 * slot, bytes);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(base + RING + slot * STAGE),
                     "l"(from), "r"(bytes), "r"(base + FULL + 8 * slot)
                     : "memory");
#ifdef AHEAD
        if (from + AHEAD <= last) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + AHEAD), "r"(bytes) : "memory");
#endif
        from += bytes, bytes = *++sizes;
    }
};

// A chunk has been read by this warp; the last warp brings the next one in its place once all have.
__device__ __forceinline__ void release(u32 base, u32 slot, u32 parity, Feeder& feeder, int warp, int lane) {
    if (lane == 0) {
        arrive(base + EMPTY + 8 * slot);
        if (warp == WARPS - 1) {
            wait(base + EMPTY + 8 * slot, parity);
            feeder.bring(base, slot);
        }
    }
    __syncwarp();
}

// A whole product: COUNT chunks [16 STEPS, 8 M8 channels] from the ring. WARPGROUPS of them multiply.
template <int M8, int STEPS, int COUNT, int WARPGROUPS, int STEP_K, class Address>
__device__ __forceinline__ void product_at(float (&acc)[TILES][4], u32 base, Address address, Ring& ring, Feeder& feeder, int warp, int lane) {
    if (warp < 4 * WARPGROUPS) {
        const u32 first = described(base + RING + (warp >> 2) * 1024, M8 * 128);
#pragma unroll 1
        for (int at = 0; at < COUNT; ++at) {
            wait(base + FULL + 8 * ring.slot, ring.parity);
            const u32 weights = first + ring.slot * (STAGE / 16), activations = described(address(at), STEP_K);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < STEPS; ++k) multiply(acc, weights + k * M8 * 16, activations + k * (STEP_K / 8),
at + k);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (at > 0) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                release(base, (ring.slot + STAGES - 1) % STAGES, ring.parity ^ (ring.slot == 0), feeder, warp, lane);
            }
            if (at < COUNT - 1) ring.next();
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int j = 0; j < TILES; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(acc[j][i])::"memory");
        release(base, ring.slot, ring.parity, feeder, warp, lane);
        ring.next();
    } else {
#pragma unroll 1
        for (int at = 0; at < COUNT; ++at) {
            wait(base + FULL + 8 * ring.slot, ring.parity);
            release(base, ring.slot, ring.parity, feeder, warp, lane);
            ring.next();
        }
    }
}

template <int M8, int STEPS, int COUNT, int WARPGROUPS>
__device__ __forceinline__ void product(float (&acc)[TILES][4], u32 base, u32 activations, Ring& ring, Feeder& feeder, int warp, int lane) {
    product_at<M8, STEPS, COUNT, WARPGROUPS, TILES * 128>(acc, base, [&](int at) { return activations + at * STEPS * 2 * TILES * 128; }, ring, feeder, warp, lane);
}

__device__ __forceinline__ float mish(float x) {
    const float e = power2(fminf(x, 20.f) * 1.4426950408889634f), n = e * (e + 2.f);
    return x * n * reciprocal(n + 2.f);
}

// x / 2 (1 + erf(x / sqrt 2)) within 3e-5: the argument of a logistic function as a polynomial.
__device__ __forceinline__ float gelu(float x) {
    const float u = fminf(x * x, 40.f), p = (1.0142550e-3f * u - 0.10677440f) * u - 2.3010905f;
    return x * reciprocal(1.f + power2(x * p));
}

}  // namespace

struct Arguments {
    const char* inputs;       // bfloat16 [units, 2, 50, 320]
    float* y;                 // [units, 2, 50, 256]: the convolution before the last norm
    const char* weights;      // bfloat16 [8, rank_bytes / 2]
    const u32* sizes;         // bytes of the chunks of weights, in the order of their use, and zero
    const float* constants;   // [levels, 14080], then the biases of the three other convolutions
    const float* times;       // [levels, 256], of this Euler step
    char* pool;               // bfloat16 pages
    const int* own;           // [units]
    const int* before;        // [units], -1 for none
    const int* pages;         // [units, table]
    const int* counts;        // [units]
    const int* valid;         // [units]
    long long rank_bytes, page, offset, layer_stride, tails;  // elements but for rank_bytes
    int levels, table;
    long long* stamps;
};

// Places of the last inputs of convolutions in a page, from `tails` on.
constexpr int IN_TAIL = 0, SKIP_TAIL = 1280, END_TAIL = SKIP_TAIL + 1024, FINAL_TAIL = END_TAIL + 1024, H_TAILS = FINAL_TAIL + 1024;

#ifdef STAMPS
#define STAMP(i) \
    if (blockIdx.x == 0 && threadIdx.x == 0) arguments.stamps[layer * 32 + (i)] = clock64();
#else
#define STAMP(i)
#endif

// The sums of a frame's two channels over the group's CTAs are added to x; then the frame is
// normalised and sent to all of them.
__device__ __forceinline__ void add_received(float (&x)[2], float2 bias, u32 place, int warp, int lane) {
    float a = bias.x, b = bias.y;
#pragma unroll
    for (int source = 0; source < 8; ++source) {
        u32 both = load4(place + source * 2048 + warp * 128 + lane * 4);
        a += low(both), b += high(both);
    }
    x[0] += a, x[1] += b;
}

// x with zero mean and unit variance over the frame's channels. turn: two buffers of moments take turns.
__device__ __forceinline__ float2 normalised(const float (&x)[2], u32 base, int& turn, int warp, int lane) {
    float sum = x[0] + x[1];
#pragma unroll
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    float mean = sum * (1.f / 16), da = x[0] - mean, db = x[1] - mean, square = da * da + db * db;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) square += __shfl_xor_sync(~0u, square, step);
    const u32 moments = base + MOMENTS + turn;
    turn ^= 512;
    if (lane < 4) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(moments + warp * 32 + lane * 8), "f"(mean), "f"(square) : "memory");
    }
    sync();
    // 16 warps have the moments of 16 channels each; the lane takes two of its slot.
    float2 one = loadf2(moments + (lane >> 2) * 32 + (lane & 3) * 8), two = loadf2(moments + ((lane >> 2) + 8) * 32 + (lane & 3) * 8);
    float means = one.x + two.x;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) means += __shfl_xor_sync(~0u, means, step);
    mean = means * (1.f / 16);
    float variance = one.y + two.y + 16.f * ((one.x - mean) * (one.x - mean) + (two.x - mean) * (two.x - mean));
#pragma unroll
    for (int step = 4; step < 32; step *= 2) variance += __shfl_xor_sync(~0u, variance, step);
    float scale = rsqrtf(variance * (1.f / CHANNELS) + 1e-5f);
    return make_float2((x[0] - mean) * scale, (x[1] - mean) * scale);
}

// Collects the warp's 16 channels of 4 frames: lane has 8 channels (lane >> 4) of slot (lane >> 2 & 3).
__device__ __forceinline__ void collect(u32 (&words)[4], float2 v, int lane) {
    const u32 word = pack(v.x, v.y);
#pragma unroll
    for (int k = 0; k < 4; ++k) words[k] = __shfl_sync(~0u, word, (4 * (lane >> 4) + k) * 4 + (lane >> 2 & 3));
}

__device__ __forceinline__ void normalise_and_send(const float (&x)[2], u32 base, int& turn, const u32 (&there)[2], int owner, int warp, int lane) {
    const int half = lane >> 4, slot = lane >> 2 & 3;
    u32 words[4];
    collect(words, normalised(x, base, turn, warp, lane), lane);
    if (8 * slot + owner < OWN_FRAMES) {
        u32 to = XN + ((2 * warp + half) * TILES + slot) * 128 + owner * 16;
#pragma unroll
        for (int b = 0; b < 2; ++b) send16(there[b] + to, words[0], words[1], words[2], words[3], there[b] + X_BAR);
    }
}

// What a CTA adds to the group's frames goes to the CTAs that own them.
__device__ __forceinline__ void send_sums(const float (&acc)[TILES][4], const u32 (&there)[2], u32 place, u32 bar, int owner, int warp, int lane) {
    u32 to = place + owner * 2048 + (8 * warp + (lane >> 2)) * 16;
#pragma unroll
    for (int b = 0; b < 2; ++b)
        send16(there[b] + to, pack(acc[0][b], acc[0][2 + b]), pack(acc[1][b], acc[1][2 + b]), pack(acc[2][b], acc[2][2 + b]),
               pack(acc[3][b], acc[3][2 + b]), there[b] + bar);
}

extern "C" __global__ void __launch_bounds__(CONSUMERS, 1) estimator_step(const __grid_constant__ Arguments arguments) {
    extern __shared__ __align__(1024) char shared[];
    const u32 base = (u32)__cvta_generic_to_shared(shared);
    const int thread = threadIdx.x, warp = __shfl_sync(~0u, thread >> 5, 0), lane = thread & 31;
    const int rank = blockIdx.x & 15, head = rank & 7, group = rank >> 3, both = blockIdx.x >> 4, unit = both >> 1, row = both & 1;
    const u32 own_bytes = OWN_FRAMES * WIDTH * 2 * 2, x_bytes = OWN_FRAMES * CHANNELS * 2, r_bytes = 8 * 2048;

    if (thread == 0) {
        for (int at = 0; at < STAGES; ++at) init(base + FULL + 8 * at, 1), init(base + EMPTY + 8 * at, WARPS);
        init(base + X_BAR, 1), init(base + R_BAR, 1), init(base + KV_BAR, 1), init(base + D_BAR, 1), init(base + S_BAR, 1);
        for (int at = 0; at < 3; ++at) init(base + A_BAR + 8 * at, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const int pages = arguments.counts[unit], past = (pages - 1) * FRAMES;
    if (thread < 8) store4(base + PAGE_IDS + 4 * thread, arguments.pages[unit * arguments.table + min(thread, pages - 1)]);
    for (int at = thread; at < 16 * 32; at += CONSUMERS)
        if (past + FRAMES + (at >> 5) < MOST_PAGES * FRAMES) store4(base + VALUES + (past + FRAMES) * 128 + at * 4, 0);
#ifndef LATE
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    __syncthreads();
    cluster_sync();

    {
        const u32 peers = group * 8 + 2 * (lane & 3);
        const u32 there[2] = {remote(base, peers), remote(base, peers + 1)};
        const u32 partner = remote(base, rank ^ 8);
        const int pair = lane >> 2, quad = lane & 3;  // of an accumulator: channels 2 pair, + 1; frames 8 j + 2 quad, + 1
        const int channel = 16 * warp + 2 * pair;
        const int owned = 8 * quad + head, frame = OWN_FRAMES * group + owned;
        const bool real = owned < OWN_FRAMES;
        const int valid = past + arguments.valid[unit], keys = past + FRAMES, tiles = 2 * ((keys + 15) / 16);
        char* mine = arguments.pool + 2 * ((long long)arguments.own[unit] * arguments.page + arguments.offset + (long long)(row * 2 * FRAMES) * INNER + head * WIDTH);

        // The thread brings 16 bytes of every 32nd key or value.
        const char* past_from = arguments.pool + 2 * (arguments.offset + (long long)((row * 2 + (thread >> 3 & 1)) * FRAMES) * INNER + head * WIDTH + (thread & 7) * 8);
        const u32 past_to = base + (thread & 8 ? VALUES : KEYS) + (thread >> 4) * 128 + (((thread & 7) ^ (thread >> 4 & 7)) << 4);
        auto fetch_past = [&](int layer) {
            const char* from = past_from + 2 * layer * arguments.layer_stride;
            u32 to = past_to, page = base + PAGE_IDS;
            int key = thread >> 4;
            long long place = (long long)(int)load4(page) * arguments.page;
            for (int left = past - key; left > 0; left -= 32) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + 2 * (place + key * INNER)) : "memory");
                to += 32 * 128, key += 32;
                if (key >= FRAMES) {
                    key -= FRAMES, page += 4;
                    place = (long long)(int)load4(page) * arguments.page;
                }
            }
        };
        const int before = arguments.before[unit], levels = arguments.levels;
        const char* tails_before = arguments.pool + 2 * ((long long)before * arguments.page + arguments.tails + row * 2 * CHANNELS + SLICE * head);
        char* tails_own = arguments.pool + 2 * ((long long)arguments.own[unit] * arguments.page + arguments.tails + (row * 2 + frame - (FRAMES - 2)) * CHANNELS + channel);
        if (group == 0 && before >= 0 && thread < 2 * (2 * levels + 2)) {
            const char* line = tails_before + 2 * (SKIP_TAIL + (thread >> 1) * 1024 + (thread & 1) * CHANNELS);
            asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
        }

        float x[2] = {0.f, 0.f}, skip[2] = {0.f, 0.f}, acc[TILES][4];
        int conv = 0, turn = 0, layer = 0;
        Ring ring;
        Feeder feeder{arguments.weights + head * arguments.rank_bytes, arguments.sizes, arguments.sizes[0],
                      both == 0 && group == 0 ? arguments.weights + (head + 1) * arguments.rank_bytes - STAGE : (const char*)0};
        if (thread == CONSUMERS - 32)
            for (int slot = 0; slot < STAGES; ++slot) feeder.bring(base, slot);
        __syncwarp();
        u32 x_phase = 0, r_phase = 0, s_phase = 0;
        asm volatile("griddepcontrol.wait;" ::: "memory");

        auto keep_tail = [&](float2 v, int tail) {
            if (real && frame >= FRAMES - 2) *(u32*)(tails_own + 2 * tail) = pack(v.x, v.y);
        };
        // The CTAs' slices of a convolution's input: columns `column`.. of 8 channels in their activations.
        auto send_slices = [&](float2 v, int column) {
            const int half = lane >> 4, r = 8 * (lane >> 2 & 3) + head, buffer = conv % 3;
            const u32 at = column + 2 * (warp & 1) + half;
            u32 words[4];
            collect(words, v, lane);
            if (quad == 0 && r < OWN_FRAMES) {
                const u32 to = remote(base, group * 8 + (warp >> 1));
                send16(to + ACTIVATIONS + buffer * ACTIVATIONS_BYTES + at * STEP + (2 + r) * 16, words[0], words[1], words[2], words[3], to + A_BAR + 8 * buffer);
            }
            if (quad == 1 && group == 0 && (r == OWN_FRAMES - 2 || r == OWN_FRAMES - 1)) {
                const u32 to = remote(base, 8 + (warp >> 1));
                send16(to + MAIL + buffer * 256 + (r - (OWN_FRAMES - 2)) * 128 + at * 16, words[0], words[1], words[2], words[3], to + A_BAR + 8 * buffer);
            }
        };
        // Waits for them, and puts the two frames before in front.
        auto receive_slices = [&](int slices, int tail, int second) {
            const int buffer = conv % 3, column = thread & 7, line = thread >> 3;
            const u32 place = base + ACTIVATIONS + buffer * ACTIVATIONS_BYTES;
            const bool mine = thread < 16 && column < 4 * slices;
            uint4 v = {0, 0, 0, 0};
            if (mine && group == 0 && before >= 0)
                v = *(const uint4*)(tails_before + 2 * ((column < 4 ? tail : second) + line * CHANNELS + 8 * (column & 3)));
            if (thread == 0) expect(base + A_BAR + 8 * buffer, (OWN_FRAMES + 2 * group) * SLICE * 2 * slices);
            wait(base + A_BAR + 8 * buffer, conv / 3 & 1);
            if (mine) {
                if (group) asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(base + MAIL + buffer * 256 + line * 128 + column * 16) : "memory");
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(place + column * STEP + line * 16), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
            }
            async_proxy();
            sync();
            ++conv;
            return place;
        };
        auto read_inputs = [&]() {
            const int column = thread & 7, line = thread >> 3, f = OWN_FRAMES * group + line - 2;
            const u32 place = base + ACTIVATIONS + 2 * ACTIVATIONS_BYTES;  // the next two convolutions use the others
            uint4 v = {0, 0, 0, 0};
            if (thread < 27 * 8) {
                if (column < 5) {
                    if (f >= 0) v = *(const uint4*)(arguments.inputs + 2 * ((both * FRAMES + f) * 320 + 40 * head + 8 * column));
                    else if (before >= 0)
                        v = *(const uint4*)(arguments.pool + 2 * ((long long)before * arguments.page + arguments.tails + IN_TAIL + (row * 2 + line) * 320 + 40 * head + 8 * column));
                }
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(place + column * STEP + line * 16), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
            }
            async_proxy();
            sync();
            return place;
        };
        // Tells the partner that the keys and values of the next layer have their place.
        auto take_keys = [&]() {
            if (thread == 0) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(partner + D_BAR) : "memory");
        };
        auto pair_of = [&](const float* from) { return *(const float2*)(from + channel); };
        auto send_to_owners = [&]() { send_sums(acc, there, RECEIVED, R_BAR, head, warp, lane); };
        auto wait_sums = [&]() {
            if (thread == 0) expect(base + R_BAR, r_bytes);
            wait(base + R_BAR, r_phase);
            r_phase ^= 1;
        };
        auto convolve = [&](u32 place) {
            product_at<32, 2, 3, 4, STEP>(acc, base, [&](int at) { return place + at * 16; }, ring, feeder, warp, lane);
            send_to_owners();
        };
        auto end_convolution = [&](int tail, const float* bias_at) {
            const float2 bias = pair_of(bias_at);
            send_slices(make_float2(x[0], x[1]), 0);
            convolve(receive_slices(1, tail, 0));
            wait_sums();
            x[0] = x[1] = 0.f;
            add_received(x, bias, base + RECEIVED, warp, lane);
            sync();
        };

        for (int level = 0; level < levels; ++level) {
            const float* constants = arguments.constants + level * LEVEL;
            const bool last_level = level == levels - 1;
            {
                STAMP(16)
                const float2 bias1 = pair_of(constants), gain1 = pair_of(constants + CHANNELS), shift1 = pair_of(constants + 2 * CHANNELS);
                const float2 time = pair_of(arguments.times + level * CHANNELS);
                u32 place;
                if (level == 0) {
                    place = read_inputs();
                } else {
                    send_slices(make_float2(x[0], x[1]), 0);
                    if (last_level) send_slices(make_float2(skip[0], skip[1]), 4);
                    place = receive_slices(last_level ? 2 : 1, H_TAILS + (levels + level - 1) * 1024, SKIP_TAIL);
                }
                STAMP(17)
                if (level == 0 || last_level) {
                    product_at<32, 2, 6, 4, STEP>(acc, base, [&](int at) { return place + (at & 1) * 4 * STEP + (at >> 1) * 16; }, ring, feeder, warp, lane);
                    send_to_owners();
                    product_at<32, 2, 2, 4, STEP>(acc, base, [&](int at) { return place + at * 4 * STEP + 32; }, ring, feeder, warp, lane);
                } else {
                    convolve(place);
                    product_at<32, 2, 1, 4, STEP>(acc, base, [&](int at) { return place + 32; }, ring, feeder, warp, lane);
                }
                send_sums(acc, there, SHORTCUTS, S_BAR, head, warp, lane);
                STAMP(18)
                wait_sums();
                STAMP(19)
                float y[2] = {0.f, 0.f};
                add_received(y, bias1, base + RECEIVED, warp, lane);
                float2 n = normalised(y, base, turn, warp, lane);
                n = make_float2(mish(n.x * gain1.x + shift1.x) + time.x, mish(n.y * gain1.y + shift1.y) + time.y);
                send_slices(n, 0);
                keep_tail(n, H_TAILS + level * 1024);
                const float2 bias2 = pair_of(constants + 3 * CHANNELS), gain2 = pair_of(constants + 4 * CHANNELS), shift2 = pair_of(constants + 5 * CHANNELS);
                const float2 bias3 = pair_of(constants + 6 * CHANNELS);
                STAMP(20)
                convolve(receive_slices(1, H_TAILS + level * 1024, 0));
                STAMP(21)
                if (thread == 0) expect(base + S_BAR, r_bytes);
                wait(base + S_BAR, s_phase);
                s_phase ^= 1;
                x[0] = x[1] = 0.f;
                add_received(x, bias3, base + SHORTCUTS, warp, lane);
                wait_sums();
                y[0] = y[1] = 0.f;
                add_received(y, bias2, base + RECEIVED, warp, lane);
                n = normalised(y, base, turn, warp, lane);
                x[0] += mish(n.x * gain2.x + shift2.x), x[1] += mish(n.y * gain2.y + shift2.y);
                normalise_and_send(x, base, turn, there, head, warp, lane);
                take_keys();
                STAMP(22)
            }
        for (int of_level = 0; of_level < LAYERS; ++of_level, ++layer) {
            STAMP(0)
            const float* biases = constants + RESNET + of_level * BIASES;
            const float2 out_bias = *(const float2*)(biases + 3 * INNER + channel), narrow_bias = *(const float2*)(biases + 3 * INNER + 5 * CHANNELS + channel);
            const float2 in_bias = *(const float2*)(biases + (warp < 12 ? (warp >> 2) * INNER + head * WIDTH + 16 * (warp & 3) + 2 * pair : 0));
            const float2 widen_bias = *(const float2*)(biases + 3 * INNER + CHANNELS + head * 128 + 16 * (warp & 7) + 2 * pair);
            

            if (thread == 0) expect(base + X_BAR, x_bytes);
            wait(base + X_BAR, x_phase);
            x_phase ^= 1;
            async_proxy();
            if (of_level == 0) fetch_past(layer);
            STAMP(1)
            product<24, 2, QKV_CHUNKS, 3>(acc, base, base + XN, ring, feeder, warp, lane);
            STAMP(2)
            if (warp < 4) {
                const int c = 16 * warp + 2 * pair;
                const u32 to = base + QUERIES + (c >> 3) * TILES * 128 + 2 * quad * 16 + (c & 7) * 2;
#pragma unroll
                for (int j = 0; j < TILES; ++j)
#pragma unroll
                    for (int b = 0; b < 2; ++b) store4(to + j * 128 + b * 16, pack(acc[j][b] + in_bias.x, acc[j][2 + b] + in_bias.y));
            } else if (warp < 12) {
                wait(base + D_BAR, layer & 1);
#pragma unroll
                for (int b = 0; b < 2; ++b) {
                    const int f = OWN_FRAMES * group + 2 * quad + b, key = past + f, c = 16 * (warp & 3) + 2 * pair;
                    const u32 to = (warp < 8 ? KEYS : VALUES) + key * 128 + (((c >> 3) ^ (key & 7)) << 4) + (c & 7) * 2;
                    char* to_page = mine + 2 * (layer * arguments.layer_stride + ((warp < 8 ? 0 : FRAMES) + f) * INNER + c);
#pragma unroll
                    for (int j = 0; j < TILES; ++j)
                        if (j < TILES - 1 || 2 * quad + b == 0) {
                            const u32 word = pack(acc[j][b] + in_bias.x, acc[j][2 + b] + in_bias.y);
                            send4(partner + to + j * 1024, word, partner + KV_BAR);
                            store4(base + to + j * 1024, word);
                            *(u32*)(to_page + 2 * j * 8 * INNER) = word;
                        }
                }
            }
            asm volatile("cp.async.wait_all;" ::: "memory");
            sync();
            if (thread == 0) expect(base + KV_BAR, own_bytes);
            wait(base + KV_BAR, layer & 1);
            STAMP(3)

            // Scores: 2 x 16 queries, key tiles warp, warp + 16, ...
            float scores[2][4][4];
            {
                u32 q[2][4][4];
#pragma unroll
                for (int m = 0; m < 2; ++m)
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        matrices4(q[m][k], base + QUERIES + ((2 * k + (lane >> 4)) * TILES + 2 * m + (lane >> 3 & 1)) * 128 + (lane & 7) * 16);
                const u32 from = base + KEYS + (warp * 8 + (lane & 7)) * 128;
                const u32 at0 = from + (((lane >> 3) ^ (lane & 7)) << 4), at1 = from + (((4 + (lane >> 3)) ^ (lane & 7)) << 4);
#pragma unroll
                for (int t = 0; t < 4; ++t) {
#pragma unroll
                    for (int m = 0; m < 2; ++m)
#pragma unroll
                        for (int i = 0; i < 4; ++i) scores[m][t][i] = 0.f;
                    if (warp + 16 * t < tiles) {
                        u32 k0[4], k1[4];
                        matrices4(k0, at0 + t * 16384);
                        matrices4(k1, at1 + t * 16384);
#pragma unroll
                        for (int m = 0; m < 2; ++m) {
                            mma(scores[m][t], q[m][0], k0[0], k0[1]);
                            mma(scores[m][t], q[m][1], k0[2], k0[3]);
                            mma(scores[m][t], q[m][2], k1[0], k1[1]);
                            mma(scores[m][t], q[m][3], k1[2], k1[3]);
                        }
                    }
                }
            }
            float highest[2][2] = {{-1e30f, -1e30f}, {-1e30f, -1e30f}};
#pragma unroll
            for (int t = 0; t < 4; ++t)
                if (warp + 16 * t < tiles) {
                    const int first = (warp + 16 * t) * 8;
                    if (first + 8 > valid) {
#pragma unroll
                        for (int m = 0; m < 2; ++m)
#pragma unroll
                            for (int i = 0; i < 4; ++i)
                                if (first + 2 * quad + (i & 1) >= valid) scores[m][t][i] = -1e30f;
                    }
#pragma unroll
                    for (int m = 0; m < 2; ++m)
#pragma unroll
                        for (int i = 0; i < 4; ++i) highest[m][i >> 1] = fmaxf(highest[m][i >> 1], scores[m][t][i]);
                }
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float& v = highest[m][h];
                    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
                    v = fmaxf(v, __shfl_xor_sync(~0u, v, 2));
                    if (quad == 0 && 16 * m + 8 * h + pair < 26) storef(base + HIGHEST + (warp * 26 + 16 * m + 8 * h + pair) * 4, v);
                }
            sync();
            float all = -1e30f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) all = fmaxf(all, loadf(base + HIGHEST + (w * 26 + lane) * 4));
            const u32 shares = base + SHARES + warp * TILES * 128 + pair * 16 + quad * 4;
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float top = __shfl_sync(~0u, all, 16 * m + 8 * h + pair) * -1.4426950408889634f;
                    float sum = 0.f;
#pragma unroll
                    for (int t = 0; t < 4; ++t)
                        if (warp + 16 * t < tiles) {
                            const float a = power2(scores[m][t][2 * h] * 1.4426950408889634f + top), b = power2(scores[m][t][2 * h + 1] * 1.4426950408889634f + top);
                            sum += a + b;
                            store4(shares + t * 8192 + (2 * m + h) * 128, pack(a, b));
                        }
                    sum += __shfl_xor_sync(~0u, sum, 1);
                    sum += __shfl_xor_sync(~0u, sum, 2);
                    if (quad == 0 && 16 * m + 8 * h + pair < 26) storef(base + SUMS + (warp * 26 + 16 * m + 8 * h + pair) * 4, sum);
                }
            sync();
            STAMP(4)
            {
                const int d = warp & 3, j = warp >> 2;
                float total[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
                u32 from = base + VALUES + ((lane & 7) + (lane >> 4) * 8) * 128 + (((2 * d + (lane >> 3 & 1)) ^ (lane & 7)) << 4);
                u32 share = base + SHARES + ((lane >> 3) * TILES + j) * 128 + (lane & 7) * 16;
                for (int k = 0; k < tiles; k += 4, from += 4096, share += 2048) {
                    u32 v[4], p[4];
                    matrices4(p, share);
                    transposed4(v, from);
                    mma(total[0], v, p[0], p[1]);
                    if (k + 2 < tiles) {
                        transposed4(v, from + 2048);
                        mma(total[1], v, p[2], p[3]);
                    }
                }
                float2 weight = {0.f, 0.f};
#pragma unroll
                for (int w = 0; w < WARPS; ++w) {
                    const float2 part = loadf2(base + SUMS + (w * 26 + 8 * j + 2 * quad) * 4);
                    weight.x += part.x, weight.y += part.y;
                }
                weight.x = reciprocal(weight.x), weight.y = reciprocal(weight.y);
                const u32 to = base + ATTENDED + ((2 * d + (pair >> 2)) * TILES + j) * 128 + 2 * quad * 16 + (pair & 3) * 4;
                store4(to, pack((total[0][0] + total[1][0]) * weight.x, (total[0][2] + total[1][2]) * weight.x));
                store4(to + 16, pack((total[0][1] + total[1][1]) * weight.y, (total[0][3] + total[1][3]) * weight.y));
            }
            async_proxy();
            sync();
            STAMP(5)
            if (of_level + 1 < LAYERS) take_keys();
            if (of_level + 1 < LAYERS) fetch_past(layer + 1);
            product<32, 2, OUT_CHUNKS, 4>(acc, base, base + ATTENDED, ring, feeder, warp, lane);
            STAMP(6)
            send_to_owners();
            wait_sums();
            STAMP(7)
            add_received(x, out_bias, base + RECEIVED, warp, lane);
            normalise_and_send(x, base, turn, there, head, warp, lane);
            STAMP(8)
            if (thread == 0) expect(base + X_BAR, x_bytes);
            wait(base + X_BAR, x_phase);
            x_phase ^= 1;
            async_proxy();
            STAMP(9)
            product<16, 4, WIDEN_CHUNKS, 2>(acc, base, base + XN, ring, feeder, warp, lane);
            STAMP(10)
            if (warp < 8) {
#pragma unroll
                for (int j = 0; j < TILES; ++j)
#pragma unroll
                    for (int b = 0; b < 2; ++b)
                        store4(base + HIDDEN + ((channel >> 3) * TILES + j) * 128 + (2 * quad + b) * 16 + (channel & 7) * 2,
                               pack(gelu(acc[j][b] + widen_bias.x), gelu(acc[j][2 + b] + widen_bias.y)));
            }
            async_proxy();
            sync();
            STAMP(11)
            product<32, 2, NARROW_CHUNKS, 4>(acc, base, base + HIDDEN, ring, feeder, warp, lane);
            STAMP(12)
            send_to_owners();
            wait_sums();
            STAMP(13)
            add_received(x, narrow_bias, base + RECEIVED, warp, lane);
            if (of_level + 1 < LAYERS) normalise_and_send(x, base, turn, there, head, warp, lane);
            else sync();
            STAMP(14)
        }
            const float2 result = make_float2(x[0], x[1]);
            const float* ends = arguments.constants + levels * LEVEL;
#ifdef LATE
            if (last_level) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
            if (level == 0) {
                keep_tail(result, SKIP_TAIL);
                skip[0] = x[0], skip[1] = x[1];
                end_convolution(SKIP_TAIL, ends);
                keep_tail(make_float2(x[0], x[1]), H_TAILS + levels * 1024);
            } else if (last_level) {
                keep_tail(result, END_TAIL);
                end_convolution(END_TAIL, ends + CHANNELS);
                keep_tail(make_float2(x[0], x[1]), FINAL_TAIL);
                end_convolution(FINAL_TAIL, ends + 2 * CHANNELS);
            } else {
                keep_tail(result, H_TAILS + (levels + level) * 1024);
            }
        }
        if (real) *(float2*)(arguments.y + ((long long)both * FRAMES + frame) * CHANNELS + channel) = make_float2(x[0], x[1]);
    }
    __syncwarp();
    cluster_sync();
}

