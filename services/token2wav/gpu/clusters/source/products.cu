// Products, and the release of their weights.

namespace {

// A chunk has been read by this warp; the last warp brings the next one in its place once all have.
INLINED void release(Program& p, u32 slot, u32 parity) {
    if (p.lane == 0) {
        arrive(p.base + EMPTY + 8 * slot);
        if (p.warp == WARPS - 1) {
            wait(p.base + EMPTY + 8 * slot, parity);
            p.feeder.bring(p.base, slot);
        }
    }
    __syncwarp();
}

// acc = COUNT chunks of the ring [16 STEPS, 8 M8 channels] times activations, those of chunk `at` at
// address(at), with COLUMN_BYTES between blocks of columns. WARPGROUPS of the program multiply.
template <int M8, int STEPS, int COUNT, int WARPGROUPS, int COLUMN_BYTES, class Address>
INLINED void product_at(Program& p, Address address) {
    Ring& ring = p.ring;
    if (p.warp < 4 * WARPGROUPS) {
        const u32 first = described(p.base + RING + (p.warp >> 2) * 1024, M8 * 128);
#pragma unroll 1
        for (int at = 0; at < COUNT; ++at) {
            wait(p.base + FULL + 8 * ring.slot, ring.parity);
            const u32 weights = first + ring.slot * (STAGE / 16), activations = described(address(at), COLUMN_BYTES);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < STEPS; ++k)
                multiply(p.acc, weights + k * M8 * 16, activations + k * (COLUMN_BYTES / 8), at + k);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (at > 0) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                release(p, (ring.slot + STAGES - 1) % STAGES, ring.parity ^ (ring.slot == 0));
            }
            if (at < COUNT - 1) ring.next();
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // The compiler may not read accumulators before they are there.
#pragma unroll
        for (int j = 0; j < TILES; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(p.acc[j][i])::"memory");
        release(p, ring.slot, ring.parity);
        ring.next();
    } else {
#pragma unroll 1
        for (int at = 0; at < COUNT; ++at) {
            wait(p.base + FULL + 8 * ring.slot, ring.parity);
            release(p, ring.slot, ring.parity);
            ring.next();
        }
    }
}

// The same of activations [columns, 32 frames] at `place`.
template <int M8, int STEPS, int COUNT, int WARPGROUPS>
INLINED void product(Program& p, u32 place) {
    product_at<M8, STEPS, COUNT, WARPGROUPS, COLUMN>(p, [&](int at) { return place + at * STEPS * 2 * COLUMN; });
}

}  // namespace
