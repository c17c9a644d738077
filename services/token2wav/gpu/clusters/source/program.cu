// What a thread knows about its program, and the weights that arrive chunk by chunk, in the order of their
// use, through a ring of bulk copies.

namespace {

// The place of the next chunk.
struct Ring {
    u32 slot = 0, parity = 0;
    INLINED void next() {
        slot = (slot + 1) % STAGES;
        parity ^= slot == 0;
    }
};

// Brings the weights of an Euler step. For one thread.
struct Feeder {
    const char* from;
    const u32* sizes;  // of the chunks, zero behind the last
    u32 bytes;

    INLINED void bring(u32 base, u32 slot) {
        if (bytes == 0) return;
        expect(base + FULL + 8 * slot, bytes);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                         "r"(base + RING + slot * STAGE), "l"(from), "r"(bytes), "r"(base + FULL + 8 * slot)
                     : "memory");
        from += bytes, bytes = *++sizes;
    }
};

// Frames are those of the program's group. Of an accumulator a thread has channels 16 warp + 2 pair, + 1
// of frames 8 j + 2 quad, + 1; it owns the same channels of frame 8 quad + head.
struct Program {
    const Arguments& arguments;
    u32 base;
    int thread, warp, lane, pair, quad, channel;
    int rank, head, group, both, row, frame;  // both: the unit's guidance row among all; frame: of the unit
    bool real;                                // whether there is that frame
    u32 there[2], partner;  // base of programs 2 quad, + 1 of the group, and of the same head in the other
    int past, valid, tiles;  // keys before the unit's own, keys that count, tiles of 8 keys, an even number
    int before;              // page of the block before, -1 for none
    char *own_keys, *own_tails;
    const char *past_keys, *past_tails;
    u32 past_to;
    Ring ring;
    Feeder feeder;
    float acc[TILES][4];
    float x[2] = {0.f, 0.f}, skip[2] = {0.f, 0.f};  // the residual stream, and that behind the first level
    int convolutions = 0, turn = 0, layer = 0;
    u32 normed_parity = 0, sums_parity = 0, shortcut_parity = 0;

    INLINED Program(const Arguments& given, u32 shared) : arguments(given), base(shared) {
        thread = threadIdx.x, warp = __shfl_sync(~0u, thread >> 5, 0), lane = thread & 31;
        pair = lane >> 2, quad = lane & 3, channel = 16 * warp + 2 * pair;
        rank = blockIdx.x & 15, head = rank & 7, group = rank >> 3, both = blockIdx.x >> 4, row = both & 1;
        frame = OWN_FRAMES * group + 8 * quad + head, real = 8 * quad + head < OWN_FRAMES;
        const int unit = both >> 1;
        past = (arguments.counts[unit] - 1) * FRAMES, valid = past + arguments.valid[unit];
        tiles = 2 * ((past + FRAMES + 15) / 16), before = arguments.before[unit];
    }

    // The places that it reads and writes. In a cluster: only then are the others there.
    INLINED void find_places() {
        const u32 peers = group * 8 + 2 * quad;
        there[0] = remote(base, peers), there[1] = remote(base, peers + 1), partner = remote(base, rank ^ 8);
        const long long own = (long long)arguments.own[both >> 1] * arguments.page;
        own_keys = arguments.pool + 2 * (own + arguments.offset + (long long)(row * 2 * FRAMES) * INNER + head * WIDTH);
        const int last = frame - (FRAMES - 2);  // which of the last two frames
        own_tails = arguments.pool + 2 * (own + arguments.tails + (row * 2 + last) * CHANNELS + channel);
        past_tails = arguments.pool +
                     2 * ((long long)before * arguments.page + arguments.tails + row * 2 * CHANNELS + SLICE * head);
        // The thread brings 16 bytes of every 32nd key or value.
        const int values = thread >> 3 & 1, first = thread >> 4, part = thread & 7;
        past_keys = arguments.pool +
                    2 * (arguments.offset + (long long)((row * 2 + values) * FRAMES) * INNER + head * WIDTH + part * 8);
        past_to = base + (values ? VALUES : KEYS) + first * 128 + ((part ^ (first & 7)) << 4);
        feeder = {arguments.weights + head * arguments.rank_bytes, arguments.sizes, arguments.sizes[0]};
    }

    INLINED float2 pair_of(const float* from) const { return *(const float2*)(from + channel); }

    INLINED void stream_is(float2 v) { x[0] = v.x, x[1] = v.y; }
};

}  // namespace
