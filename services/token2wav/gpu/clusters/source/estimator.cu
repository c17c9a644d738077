// The kernel: levels of a resnet and four transformers each, and the three other convolutions.

namespace {

INLINED float gelu(float x) {
    // x / 2 (1 + erf(x / sqrt 2)) within 3e-5: the argument of a logistic function as a polynomial.
    const float u = fminf(x * x, 40.f), f = (1.0142550e-3f * u - 0.10677440f) * u - 2.3010905f;
    return x * reciprocal(1.f + power2(x * f));
}

// Layer number `at` of its level. The stream's normalised frames are on their way when it begins, and those
// of the next layer of the level when it ends.
INLINED void transform(Program& p, int at, const float* biases) {
    const float* ffn = biases + 3 * INNER + CHANNELS;
    const int in_channel = (p.warp >> 2) * INNER + p.head * WIDTH + 16 * (p.warp & 3) + 2 * p.pair;
    const float2 in_bias = *(const float2*)(biases + (p.warp < 12 ? in_channel : 0));
    const float2 out_bias = p.pair_of(biases + 3 * INNER), narrow_bias = p.pair_of(ffn + 4 * CHANNELS);
    const float2 widen_bias = *(const float2*)(ffn + p.head * 128 + 16 * (p.warp & 7) + 2 * p.pair);
    const bool last = at == LAYERS - 1;

    wait_for_normed(p);
    if (at == 0) fetch_past(p, p.layer);
    product<24, 2, QKV_CHUNKS, 3>(p, p.base + NORMED);
    place_heads(p, in_bias);
    float scores[2][4][4];
    score(p, scores);
    share(p, scores);
    gather(p);
    if (!last) make_room(p), fetch_past(p, p.layer + 1);
    product<32, 2, OUT_CHUNKS, 4>(p, p.base + ATTENDED);
    send_sums(p);
    add_sums(p, out_bias);
    send_normed(p);

    wait_for_normed(p);
    product<16, 4, WIDEN_CHUNKS, 2>(p, p.base + NORMED);
    if (p.warp < 8) {
        const u32 to = p.base + HIDDEN + (p.channel >> 3) * COLUMN + 2 * p.quad * 16 + (p.channel & 7) * 2;
#pragma unroll
        for (int j = 0; j < TILES; ++j)
#pragma unroll
            for (int b = 0; b < 2; ++b)
                store4(to + j * 128 + b * 16,
                       pack(gelu(p.acc[j][b] + widen_bias.x), gelu(p.acc[j][2 + b] + widen_bias.y)));
    }
    async_proxy();
    sync();
    product<32, 2, NARROW_CHUNKS, 4>(p, p.base + HIDDEN);
    send_sums(p);
    add_sums(p, narrow_bias);
    if (last) sync();  // all warps have read the sums before what follows from them is sent
    else send_normed(p);
    ++p.layer;
}

// Barriers, the unit's pages, and zeros for the values behind its last one.
INLINED void prepare(const Program& p) {
    if (p.thread == 0) {
        for (int at = 0; at < STAGES; ++at) init(p.base + FULL + 8 * at, 1), init(p.base + EMPTY + 8 * at, WARPS);
        for (int at = NORMED_BAR; at < PAGE_IDS; at += 8) init(p.base + at, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const int pages = p.past / FRAMES + 1, behind = p.past + FRAMES;
    const int* of_unit = p.arguments.pages + (p.both >> 1) * p.arguments.table;
    if (p.thread < MOST_PAGES) store4(p.base + PAGE_IDS + 4 * p.thread, of_unit[min(p.thread, pages - 1)]);
    for (int at = p.thread; at < 16 * 32; at += THREADS)
        if (behind + (at >> 5) < MOST_PAGES * FRAMES) store4(p.base + VALUES + behind * 128 + at * 4, 0);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1) estimator_step(const __grid_constant__ Arguments arguments) {
    extern __shared__ __align__(1024) char shared[];
    Program p(arguments, (u32)__cvta_generic_to_shared(shared));
    prepare(p);
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __syncthreads();
    cluster_sync();
    p.find_places();
    if (p.thread == THREADS - 32)
        for (int slot = 0; slot < STAGES; ++slot) p.feeder.bring(p.base, slot);
    __syncwarp();
    asm volatile("griddepcontrol.wait;" ::: "memory");

    const int levels = arguments.levels;
    const float* ends = arguments.constants + levels * LEVEL;
#pragma unroll 1
    for (int level = 0; level < levels; ++level) {
        const float* constants = arguments.constants + level * LEVEL;
        resnet(p, level, constants);
        send_normed(p);
        make_room(p);
#pragma unroll 1
        for (int at = 0; at < LAYERS; ++at) transform(p, at, constants + RESNET + at * BIASES);
        const float2 result = make_float2(p.x[0], p.x[1]);
        if (level == 0) {
            keep_tail(p, result, SKIP_TAIL);
            p.skip[0] = p.x[0], p.skip[1] = p.x[1];
            convolve_stream(p, SKIP_TAIL, ends);
            keep_tail(p, make_float2(p.x[0], p.x[1]), H_TAILS + levels * TAIL);
        } else if (level == levels - 1) {
            keep_tail(p, result, END_TAIL);
            convolve_stream(p, END_TAIL, ends + CHANNELS);
            keep_tail(p, make_float2(p.x[0], p.x[1]), FINAL_TAIL);
            convolve_stream(p, FINAL_TAIL, ends + 2 * CHANNELS);
        } else {
            keep_tail(p, result, H_TAILS + (levels + level) * TAIL);
        }
    }
    if (p.real)
        *(float2*)(arguments.y + ((long long)p.both * FRAMES + p.frame) * CHANNELS + p.channel) =
            make_float2(p.x[0], p.x[1]);
    cluster_sync();  // no program ends before what others send it has arrived
}
