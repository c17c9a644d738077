// Causal convolutions of three taps. A program has 32 input channels, of two inputs 32 of each, of the
// step's inputs 40; what its slice adds to all output channels goes to the frames' owners.

namespace {

// The thread's part of a convolution's input becomes the last frames of a page's tail.
INLINED void keep_tail(const Program& p, float2 v, int tail) {
    if (p.real && p.frame >= FRAMES - 2) *(u32*)(p.own_tails + 2 * tail) = pack(v.x, v.y);
}

// Frames go to the programs that have their channels, as columns `column`.. of 8 channels of their
// activations, and the first group's last two to the second group as well, which has them in front.
INLINED void send_slices(const Program& p, float2 v, int column) {
    const int r = 8 * (p.lane >> 2 & 3) + p.head, buffer = p.convolutions % 3;
    const u32 at = column + 2 * (p.warp & 1) + (p.lane >> 4), bar = SLICES_BARS + 8 * buffer;
    u32 words[4];
    collect(words, v, p.lane);
    if (p.quad == 0 && r < OWN_FRAMES) {
        const u32 to = remote(p.base, p.group * 8 + (p.warp >> 1));
        send16(to + ACTIVATIONS + buffer * ACTIVATIONS_BYTES + at * STEP + (2 + r) * 16, words, to + bar);
    }
    if (p.quad == 1 && p.group == 0 && (r == OWN_FRAMES - 2 || r == OWN_FRAMES - 1)) {
        const u32 to = remote(p.base, 8 + (p.warp >> 1));
        send16(to + MAIL + buffer * MAIL_BYTES + (r - (OWN_FRAMES - 2)) * 128 + at * 16, words, to + bar);
    }
}

// Waits for so many slices and puts the two frames before in front: the first group's are in the page
// before, at `tail`, and those of a second slice at `second`. Returns the place. All threads meet here.
INLINED u32 receive_slices(Program& p, int slices, int tail, int second) {
    const int buffer = p.convolutions % 3, column = p.thread & 7, line = p.thread >> 3;
    const u32 place = p.base + ACTIVATIONS + buffer * ACTIVATIONS_BYTES, bar = p.base + SLICES_BARS + 8 * buffer;
    const bool mine = p.thread < 16 && column < 4 * slices;
    uint4 v = {0, 0, 0, 0};
    if (mine && p.group == 0 && p.before >= 0) {
        const int at = (column < 4 ? tail : second) + line * CHANNELS + 8 * (column & 3);
        v = *(const uint4*)(p.past_tails + 2 * at);
    }
    if (p.thread == 0) expect(bar, (OWN_FRAMES + 2 * p.group) * SLICE * 2 * slices);
    wait(bar, p.convolutions / 3 & 1);
    if (mine) {
        if (p.group) v = load16(p.base + MAIL + buffer * MAIL_BYTES + line * 128 + column * 16);
        store16(place + column * STEP + line * 16, v);
    }
    async_proxy();
    sync();
    ++p.convolutions;
    return place;
}

// The step's inputs, in the buffer that none of the next two convolutions uses.
INLINED u32 read_inputs(const Program& p) {
    const int column = p.thread & 7, line = p.thread >> 3, frame = OWN_FRAMES * p.group + line - 2;
    const u32 place = p.base + ACTIVATIONS + 2 * ACTIVATIONS_BYTES;
    const int channel = 40 * p.head + 8 * column;
    uint4 v = {0, 0, 0, 0};
    if (p.thread < 27 * 8) {
        const Arguments& a = p.arguments;
        if (column < 5 && frame >= 0) {
            v = *(const uint4*)(a.inputs + 2 * ((p.both * FRAMES + frame) * 320 + channel));
        } else if (column < 5 && p.before >= 0) {
            const long long page = (long long)p.before * a.page + a.tails + IN_TAIL;
            v = *(const uint4*)(a.pool + 2 * (page + (p.row * 2 + line) * 320 + channel));
        }
        store16(place + column * STEP + line * 16, v);
    }
    async_proxy();
    sync();
    return place;
}

// Of 32 channels at `place`.
INLINED void convolve(Program& p, u32 place) {
    product_at<32, 2, 3, 4, STEP>(p, [&](int at) { return place + at * 16; });
    send_sums(p);
}

// The stream becomes its convolution, whose tail is at `tail`.
INLINED void convolve_stream(Program& p, int tail, const float* bias) {
    const float2 own_bias = p.pair_of(bias);
    send_slices(p, make_float2(p.x[0], p.x[1]), 0);
    convolve(p, receive_slices(p, 1, tail, 0));
    wait_for_sums(p);
    p.stream_is(received(p, own_bias, RECEIVED));
    sync();  // all warps have read the sums before what follows from them is sent
}

INLINED float2 mish(float2 v, float2 gain, float2 shift) {
    const auto one = [](float x) {
        const float e = power2(fminf(x, 20.f) * 1.4426950408889634f), n = e * (e + 2.f);
        return x * n * reciprocal(n + 2.f);
    };
    return make_float2(one(v.x * gain.x + shift.x), one(v.y * gain.y + shift.y));
}

// The resnet of a level: the stream (or the step's inputs; at the last level, the stream and that behind
// the first level) becomes its sum of two convolutions with norms and of a product.
INLINED void resnet(Program& p, int level, const float* constants) {
    const int levels = p.arguments.levels;
    const bool wide = level == 0 || level == levels - 1;
    const float2 bias = p.pair_of(constants), gain = p.pair_of(constants + CHANNELS);
    const float2 shift = p.pair_of(constants + 2 * CHANNELS), time = p.pair_of(p.arguments.times + level * CHANNELS);
    u32 place;
    if (level == 0) {
        place = read_inputs(p);
    } else {
        send_slices(p, make_float2(p.x[0], p.x[1]), 0);
        if (wide) send_slices(p, make_float2(p.skip[0], p.skip[1]), 4);
        place = receive_slices(p, wide ? 2 : 1, H_TAILS + (levels + level - 1) * TAIL, SKIP_TAIL);
    }
    if (wide) {
        product_at<32, 2, 6, 4, STEP>(p, [&](int at) { return place + (at & 1) * 4 * STEP + (at >> 1) * 16; });
        send_sums(p);
        product_at<32, 2, 2, 4, STEP>(p, [&](int at) { return place + at * 4 * STEP + 32; });
    } else {
        convolve(p, place);
        product_at<32, 2, 1, 4, STEP>(p, [&](int at) { return place + 32; });
    }
    send_sums(p, SHORTCUTS, SHORTCUT_BAR);
    wait_for_sums(p);
    float2 v = mish(normalised(p, received(p, bias, RECEIVED)), gain, shift);
    v = make_float2(v.x + time.x, v.y + time.y);
    send_slices(p, v, 0);
    keep_tail(p, v, H_TAILS + level * TAIL);
    const float2 second_bias = p.pair_of(constants + 3 * CHANNELS), second_gain = p.pair_of(constants + 4 * CHANNELS);
    const float2 second_shift = p.pair_of(constants + 5 * CHANNELS), own_bias = p.pair_of(constants + 6 * CHANNELS);
    convolve(p, receive_slices(p, 1, H_TAILS + level * TAIL, 0));
    wait_for(p, SHORTCUT_BAR, SUMS_BYTES, p.shortcut_parity);
    p.stream_is(received(p, own_bias, SHORTCUTS));
    wait_for_sums(p);
    v = mish(normalised(p, received(p, second_bias, RECEIVED)), second_gain, second_shift);
    p.x[0] += v.x, p.x[1] += v.y;
}

}  // namespace
