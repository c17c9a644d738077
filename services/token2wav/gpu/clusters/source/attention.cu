// Attention of a program's head: the queries of its 25 frames, keys and values of all frames, which lie in
// shared memory. The two groups of a cluster exchange theirs.

namespace {

// The other group's program may send the keys and values of the next layer.
INLINED void make_room(const Program& p) {
    if (p.thread == 0) arrive_there(p.partner + ROOM_BAR);
}

// Keys and values of the pages before, of this layer, are on their way.
INLINED void fetch_past(const Program& p, int layer) {
    const char* from = p.past_keys + 2 * layer * p.arguments.layer_stride;
    u32 to = p.past_to, page = p.base + PAGE_IDS;
    int key = p.thread >> 4;
    long long place = (long long)(int)load4(page) * p.arguments.page;
    for (int left = p.past - key; left > 0; left -= 32) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + 2 * (place + key * INNER))
                     : "memory");
        to += 32 * 128, key += 32;
        if (key >= FRAMES) {
            key -= FRAMES, page += 4;
            place = (long long)(int)load4(page) * p.arguments.page;
        }
    }
}

// Accumulators of queries, keys and values (four warps each) go where attention reads them: keys and
// values to both groups, and to the page.
INLINED void place_heads(Program& p, float2 bias) {
    const int c = 16 * (p.warp & 3) + 2 * p.pair;
    if (p.warp < 4) {
        const u32 to = p.base + QUERIES + (c >> 3) * COLUMN + 2 * p.quad * 16 + (c & 7) * 2;
#pragma unroll
        for (int j = 0; j < TILES; ++j)
#pragma unroll
            for (int b = 0; b < 2; ++b)
                store4(to + j * 128 + b * 16, pack(p.acc[j][b] + bias.x, p.acc[j][2 + b] + bias.y));
    } else if (p.warp < 12) {
        wait(p.base + ROOM_BAR, p.layer & 1);
#pragma unroll
        for (int b = 0; b < 2; ++b) {
            const int f = OWN_FRAMES * p.group + 2 * p.quad + b, key = p.past + f;
            const u32 to = (p.warp < 8 ? KEYS : VALUES) + key * 128 + (((c >> 3) ^ (key & 7)) << 4) + (c & 7) * 2;
            char* page = p.own_keys +
                         2 * (p.layer * p.arguments.layer_stride + ((p.warp < 8 ? 0 : FRAMES) + f) * INNER + c);
#pragma unroll
            for (int j = 0; j < TILES; ++j)
                if (j < TILES - 1 || 2 * p.quad + b == 0) {
                    const u32 word = pack(p.acc[j][b] + bias.x, p.acc[j][2 + b] + bias.y);
                    send4(p.partner + to + j * 1024, word, p.partner + KEYS_BAR);
                    store4(p.base + to + j * 1024, word);
                    *(u32*)(page + 2 * j * 8 * INNER) = word;
                }
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    sync();
    if (p.thread == 0) expect(p.base + KEYS_BAR, OWN_FRAMES * WIDTH * 2 * 2);
    wait(p.base + KEYS_BAR, p.layer & 1);
}

// Scores of 2 x 16 queries and key tiles warp, warp + 16, ...; -1e30 for keys that do not count.
INLINED void score(const Program& p, float (&scores)[2][4][4]) {
    u32 q[2][4][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int tile = (2 * k + (p.lane >> 4)) * TILES + 2 * m + (p.lane >> 3 & 1);
            matrices4(q[m][k], p.base + QUERIES + tile * 128 + (p.lane & 7) * 16);
        }
    const u32 from = p.base + KEYS + (p.warp * 8 + (p.lane & 7)) * 128;
    const u32 first_half = from + (((p.lane >> 3) ^ (p.lane & 7)) << 4);
    const u32 second_half = from + (((4 + (p.lane >> 3)) ^ (p.lane & 7)) << 4);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) scores[m][t][i] = 0.f;
        if (p.warp + 16 * t < p.tiles) {
            u32 k0[4], k1[4];
            matrices4(k0, first_half + t * 16384);
            matrices4(k1, second_half + t * 16384);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                mma(scores[m][t], q[m][0], k0[0], k0[1]);
                mma(scores[m][t], q[m][1], k0[2], k0[3]);
                mma(scores[m][t], q[m][2], k1[0], k1[1]);
                mma(scores[m][t], q[m][3], k1[2], k1[3]);
            }
            const int first = (p.warp + 16 * t) * 8;
            if (first + 8 > p.valid) {
#pragma unroll
                for (int m = 0; m < 2; ++m)
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (first + 2 * p.quad + (i & 1) >= p.valid) scores[m][t][i] = -1e30f;
            }
        }
    }
}

// The exponentials of scores, and their sums over the warp's keys, go to shared memory.
INLINED void share(const Program& p, const float (&scores)[2][4][4]) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float highest = -1e30f;
#pragma unroll
            for (int t = 0; t < 4; ++t)
                if (p.warp + 16 * t < p.tiles)
                    highest = fmaxf(highest, fmaxf(scores[m][t][2 * h], scores[m][t][2 * h + 1]));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
            const int query = 16 * m + 8 * h + p.pair;
            if (p.quad == 0 && query < 26) storef(p.base + HIGHEST + (p.warp * 26 + query) * 4, highest);
        }
    sync();
    float all = -1e30f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all = fmaxf(all, loadf(p.base + HIGHEST + (w * 26 + p.lane) * 4));
    const float log2e = 1.4426950408889634f;
    const u32 shares = p.base + SHARES + p.warp * COLUMN + p.pair * 16 + p.quad * 4;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int query = 16 * m + 8 * h + p.pair;
            const float top = __shfl_sync(~0u, all, query) * -log2e;
            float sum = 0.f;
#pragma unroll
            for (int t = 0; t < 4; ++t)
                if (p.warp + 16 * t < p.tiles) {
                    const float a = power2(scores[m][t][2 * h] * log2e + top);
                    const float b = power2(scores[m][t][2 * h + 1] * log2e + top);
                    sum += a + b;
                    store4(shares + t * 8192 + (2 * m + h) * 128, pack(a, b));
                }
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (p.quad == 0 && query < 26) storef(p.base + SUMS + (p.warp * 26 + query) * 4, sum);
        }
    sync();
}

// Values by their shares: 16 channels of 8 frames a warp, as the activations of the next product.
INLINED void gather(const Program& p) {
    const int d = p.warp & 3, j = p.warp >> 2, lane = p.lane;
    float total[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
    const u32 part = (2 * d + (lane >> 3 & 1)) ^ (lane & 7);
    u32 from = p.base + VALUES + ((lane & 7) + (lane >> 4) * 8) * 128 + (part << 4);
    u32 shares = p.base + SHARES + ((lane >> 3) * TILES + j) * 128 + (lane & 7) * 16;
    for (int k = 0; k < p.tiles; k += 4, from += 4096, shares += 2048) {
        u32 v[4], s[4];
        matrices4(s, shares);
        transposed4(v, from);
        mma(total[0], v, s[0], s[1]);
        if (k + 2 < p.tiles) {
            transposed4(v, from + 2048);
            mma(total[1], v, s[2], s[3]);
        }
    }
    float2 weight = {0.f, 0.f};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        const float2 sums = loadf2(p.base + SUMS + (w * 26 + 8 * j + 2 * p.quad) * 4);
        weight.x += sums.x, weight.y += sums.y;
    }
    weight.x = reciprocal(weight.x), weight.y = reciprocal(weight.y);
    const u32 to = p.base + ATTENDED + ((2 * d + (p.pair >> 2)) * TILES + j) * 128 + 2 * p.quad * 16 + (p.pair & 3) * 4;
    store4(to, pack((total[0][0] + total[1][0]) * weight.x, (total[0][2] + total[1][2]) * weight.x));
    store4(to + 16, pack((total[0][1] + total[1][1]) * weight.y, (total[0][3] + total[1][3]) * weight.y));
    async_proxy();
    sync();
}

}  // namespace
