// Attention over the pages of a sequence, and the product behind it.

// Attention of one key head to the pages part, part + parts and so on, two at a time: a warp takes
// 16 keys.
__device__ __forceinline__ void attend(const Arguments& a, Shared& shared, Ring& ring, int layer) {
    const Task& task = shared.task;
    const Here here(a);
    const int lane = here.lane, warp = here.warp, group = lane >> 2, quad = lane & 3;
    u64* exchange = here.exchange;
    const int unit_pages = task.pages, part = task.part, parts = task.parts, key_head = task.key_head;
    const int position = task.position, used = position / PAGE + 1;
    const u32 tag = tag_of(task.step, layer);
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
        u32 turns = 0;
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
        } while (!all_ready(ready, turns));
    }
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
    // The warps' sums are put together in a stage that no warp reads any more.
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
}

// Parts of the attention put together, times the output's weights, into the residual stream.
__device__ __forceinline__ void add_attention(const Arguments& a, Shared& shared, Ring& ring, int& flip, int layer) {
    const Task& task = shared.task;
    const Here here(a);
    const int lane = here.lane, warp = here.warp, group = lane >> 2, quad = lane & 3;
    u64* exchange = here.exchange;
    const int parts = task.parts;
    const u32 tag = tag_of(task.step, layer);
    u32 one, other;
    {
        const u64* from = exchange + PARTS + (warp * (8 * STEPS) + 2 * lane) * 2;
        const bool mine = lane < 4 * STEPS;
        u64 pairs[MOST_PARTS][2], stats[MOST_PARTS][2];
        u32 turns = 0;
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
        } while (!all_ready(ready, turns));
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
