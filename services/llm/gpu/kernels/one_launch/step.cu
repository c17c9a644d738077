// The step.

// Row of the projection, its angle and its place in the cache, for the threads that add it up.
__device__ __forceinline__ HeadsRow heads_row(const Arguments& a, int row, int slot, int active, int position) {
    HeadsRow one{-1, row, 1.0f, 0.0f};
    if (row < QUERY + KEY_HEADS * D) {
        const int at = position * (D / 2) + (row >> 1) % (D / 2);
        one.cosine = a.cosines[at];
        one.sine = row & 1 ? a.sines[at] : -a.sines[at];
    }
    if (row >= QUERY) {
        const int behind = row - QUERY, is_value = behind / (KEY_HEADS * D), head = behind % (KEY_HEADS * D) / D;
        const long long page = a.pages[(long long)slot * a.most_pages + position / PAGE] * active;
        one.kept = (((page * KEY_HEADS + head) * 2 + is_value) * PAGE + position % PAGE) * D + behind % D;
    }
    return one;
}

extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 1) one_launch(const __grid_constant__ Arguments a) {
    Shared& shared = shared_state();
    const Plan& plan = a.plans[blockIdx.x];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    Ring ring{address(memory), 0, 0};
    if (threadIdx.x == 0) {
        ring.begin();
        shared.began = nanoseconds();
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

    if (threadIdx.x == 0)
        shared.task = Task{plan.own, plan.heads_count, plan.gated_count, position, parts, part, key_head, unit_pages,
                           *(volatile u32*)a.epoch};
    const u32* embedding = a.table + (long long)state[1] * (HIDDEN / 2);
    if (threadIdx.x < 8 * plan.heads_count)
        shared.heads[threadIdx.x] =
            heads_row(a, plan.heads[threadIdx.x >> 3] * 8 + (int)(threadIdx.x & 7), slot, active, position);
    // The word of the gated product of each thread that adds one up.
    if (threadIdx.x < 16 * plan.gated_count)
        shared.gated[threadIdx.x] = plan.gated[threadIdx.x >> 4] * 4 + (int)((threadIdx.x & 7) >> 1);
    // The part of the residual stream that this program keeps.
    if (plan.own >= 0 && threadIdx.x < 8) {
        const u32 word = embedding[plan.own * 4 + (threadIdx.x >> 1)];
        shared.residual[threadIdx.x] = threadIdx.x & 1 ? high(word) : low(word);
    }
    meet();
    // Sums of one product are read while those of the next are written: they have two places.
    int flip = 0;
#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
        asm volatile("" ::: "memory");
        if (shared.task.heads_count) project(a, shared, ring, flip, layer, embedding);
        if (shared.task.pages) attend(a, shared, ring, layer);
        if (shared.task.own >= 0) add_attention(a, shared, ring, flip, layer);
        gate_and_up(a, shared, ring, flip, layer);
        if (shared.task.own >= 0) add_down(a, shared, ring, flip, layer);
    }
    score(a, plan, shared, ring, flip);
    // All programs have read the number of the step, or this one could not be here.
    if (blockIdx.x == 0 && threadIdx.x == 0) *a.epoch = shared.task.step + 1;
}
