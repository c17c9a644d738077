// The products of a layer and the head.

// Queries, keys and values; keys and values into the cache too.
__device__ __forceinline__ void project(const Arguments& a, Shared& shared, Ring& ring, int& flip, int layer,
                                        const u32* embedding) {
    const Task& task = shared.task;
    const Here here(a);
    const int lane = here.lane, warp = here.warp, group = lane >> 2, quad = lane & 3;
    u64* exchange = here.exchange;
    const int heads_count = task.heads_count;
    const u32 tag = tag_of(task.step, layer);
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
            if (mine.kept >= 0) *(u32*)(a.cache + layer * a.layer_bytes + 2 * mine.kept) = word;
        }
    }
    flip ^= 1;
}

// Gate and up: rows 0 to 7 of a tile are the gate's, 8 to 15 up's, of the same columns.
__device__ __forceinline__ void gate_and_up(const Arguments& a, Shared& shared, Ring& ring, int& flip, int layer) {
    const Task& task = shared.task;
    const Here here(a);
    const int lane = here.lane, warp = here.warp, group = lane >> 2, quad = lane & 3;
    u64* exchange = here.exchange;
    const u32 tag = tag_of(task.step, layer);
    const int gated_count = task.gated_count;
    u32 one, other;
    read_row(exchange + AFTER_OUT, tag, warp, lane, one, other);
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

// Down, into the residual stream.
__device__ __forceinline__ void add_down(const Arguments& a, Shared& shared, Ring& ring, int& flip, int layer) {
    const Task& task = shared.task;
    const Here here(a);
    const int lane = here.lane, warp = here.warp, group = lane >> 2, quad = lane & 3;
    u64* exchange = here.exchange;
    const u32 tag = tag_of(task.step, layer);
    u32 ones[DEEP_CHUNKS], others[DEEP_CHUNKS];
    {
        const u64* from = exchange + GATED + warp * (8 * DEEP) + 2 * lane;
        u32 turns = 0;
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
        } while (!all_ready(ready, turns));
    }
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

// The head, in float32: lane l < 28 has columns 4 l to 4 l + 3 of the warp's 112.
__device__ __forceinline__ void score(const Arguments& a, const Plan& plan, Shared& shared, Ring& ring, int flip) {
    const Here here(a);
    const int lane = here.lane, warp = here.warp;
    const u32 tag = tag_of(shared.task.step, LAYERS - 1);
    const bool mine = lane < 4 * STEPS;
    float x[4];
    {
        const u64* from = here.exchange + LAST + warp * (16 * STEPS) + 4 * lane;
        u32 turns = 0;
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
        } while (!all_ready(ready, turns));
    }
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
    if (threadIdx.x < ids) {
        const float scale = inverse_root(sum_of(shared.squares[flip]) / HIDDEN + a.epsilon);
        const int id = plan.first_id + threadIdx.x;
        a.logits[id] = sum_of(sums + threadIdx.x * WARPS) * scale + a.head_bias[id];
    }
}
