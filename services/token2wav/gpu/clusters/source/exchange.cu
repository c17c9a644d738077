// What the programs of a group exchange: sums of frames, and normalised frames. Frame r is summed, in the
// order of the programs, and normalised by program r % 8, which keeps its residual stream in registers.

namespace {

// What this program adds to the group's frames goes to the programs that own them.
INLINED void send_sums(const Program& p, u32 place, u32 bar) {
    const u32 to = place + p.head * 2048 + (8 * p.warp + p.pair) * 16;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
        const u32 words[4] = {pack(p.acc[0][b], p.acc[0][2 + b]), pack(p.acc[1][b], p.acc[1][2 + b]),
                              pack(p.acc[2][b], p.acc[2][2 + b]), pack(p.acc[3][b], p.acc[3][2 + b])};
        send16(p.there[b] + to, words, p.there[b] + bar);
    }
}

INLINED void send_sums(const Program& p) { send_sums(p, RECEIVED, SUMS_BAR); }

INLINED void wait_for(const Program& p, u32 bar, u32 bytes, u32& parity) {
    if (p.thread == 0) expect(p.base + bar, bytes);
    wait(p.base + bar, parity);
    parity ^= 1;
}

INLINED void wait_for_sums(Program& p) { wait_for(p, SUMS_BAR, SUMS_BYTES, p.sums_parity); }

INLINED void wait_for_normed(Program& p) {
    wait_for(p, NORMED_BAR, OWN_FRAMES * CHANNELS * 2, p.normed_parity);
    async_proxy();
}

// bias and the sums of the thread's frame over the programs.
INLINED float2 received(const Program& p, float2 bias, u32 place) {
#pragma unroll
    for (int source = 0; source < HEADS; ++source) {
        const u32 both = load4(p.base + place + source * 2048 + p.warp * 128 + p.lane * 4);
        bias.x += low(both), bias.y += high(both);
    }
    return bias;
}

// With zero mean and unit variance over the frame's channels. All threads meet here.
INLINED float2 normalised(Program& p, float2 v) {
    float sum = v.x + v.y;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    float mean = sum * (1.f / 16), da = v.x - mean, db = v.y - mean, square = da * da + db * db;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) square += __shfl_xor_sync(~0u, square, step);
    const u32 moments = p.base + MOMENTS + p.turn;  // two buffers take turns
    p.turn ^= 512;
    if (p.lane < 4) storef2(moments + p.warp * 32 + p.lane * 8, make_float2(mean, square));
    sync();
    // 16 warps have the moments of 16 channels each; the lane takes two of its frame.
    const float2 one = loadf2(moments + p.pair * 32 + p.quad * 8);
    const float2 two = loadf2(moments + (p.pair + 8) * 32 + p.quad * 8);
    float means = one.x + two.x;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) means += __shfl_xor_sync(~0u, means, step);
    mean = means * (1.f / 16);
    float variance = one.y + two.y + 16.f * ((one.x - mean) * (one.x - mean) + (two.x - mean) * (two.x - mean));
#pragma unroll
    for (int step = 4; step < 32; step *= 2) variance += __shfl_xor_sync(~0u, variance, step);
    const float scale = rsqrtf(variance * (1.f / CHANNELS) + 1e-5f);
    return make_float2((v.x - mean) * scale, (v.y - mean) * scale);
}

// Collects the warp's 16 channels of 4 frames: the lane gets 8 channels (lane >> 4) of frame (lane >> 2 & 3).
INLINED void collect(u32 (&words)[4], float2 v, int lane) {
    const u32 word = pack(v.x, v.y);
#pragma unroll
    for (int k = 0; k < 4; ++k) words[k] = __shfl_sync(~0u, word, (4 * (lane >> 4) + k) * 4 + (lane >> 2 & 3));
}

// The stream's frame, normalised, goes to all programs of the group.
INLINED void send_normed(Program& p) {
    const int half = p.lane >> 4, slot = p.lane >> 2 & 3;
    u32 words[4];
    collect(words, normalised(p, make_float2(p.x[0], p.x[1])), p.lane);
    if (8 * slot + p.head < OWN_FRAMES) {
        const u32 to = NORMED + ((2 * p.warp + half) * TILES + slot) * 128 + p.head * 16;
#pragma unroll
        for (int b = 0; b < 2; ++b) send16(p.there[b] + to, words, p.there[b] + NORMED_BAR);
    }
}

// The sums become part of the stream.
INLINED void add_sums(Program& p, float2 bias) {
    wait_for_sums(p);
    const float2 sum = received(p, bias, RECEIVED);
    p.x[0] += sum.x, p.x[1] += sum.y;
}

}  // namespace
