// Products by the matrix units, sums, and numbers in words.

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&w)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(w[0]), "r"(w[2]), "r"(w[1]), "r"(w[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load(u32 (&x)[4], u32 at) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ void load_half(u32 (&x)[4], u32 at) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(at) : "memory");
    x[2] = x[3] = 0;
}

__device__ __forceinline__ u32 load_word(u32 at) {
    u32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}

__device__ __forceinline__ void store_word(u32 at, u32 x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float logarithm(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float inverse_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float sum_of(const float* parts) {
    float4 a = *(const float4*)parts, b = *(const float4*)(parts + 4);
    return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

__device__ __forceinline__ float most_over_groups(float x) {
#pragma unroll
    for (int distance = 4; distance < 32; distance <<= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

__device__ __forceinline__ void note_squares(float* squares, u32 one, u32 other, int lane) {
    float sum =
        warp_sum(low(one) * low(one) + high(one) * high(one) + low(other) * low(other) + high(other) * high(other));
    if (lane == 0) *squares = sum;
}

// The lane with the four columns that this lane multiplies in the fragment `step` of 8 rows: its
// first half goes to even columns of the other operand, its second half to odd ones.
__device__ __forceinline__ int source(int step, int lane) { return 8 * step + (lane & 7); }

// Products of a tile of 8 rows with this warp's columns; lanes with lane % 4 == 0 have row lane / 4.
__device__ __forceinline__ float eight_rows(u32 stage, u32 one, u32 other, int warp, int lane) {
    u32 w[4][4], at = stage + warp * (STEPS * UNIT);
#pragma unroll
    for (int i = 0; i < 3; i++) load(w[i], at + i * 2 * UNIT + lane * 16);
    load_half(w[3], at + 6 * UNIT + lane * 8);
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
        multiply(sums[i & 1], w[i], __shfl_sync(~0u, one, source(i, lane)), __shfl_sync(~0u, other, source(i, lane)));
    return (sums[0][0] + sums[0][3]) + (sums[1][0] + sums[1][3]);
}
