// What lies where: in global memory, in a page of the pool, and in the shared memory of a program.
//
// An Euler step of the U-Net flow in one launch of thread-block clusters (compute capability 9.0). The
// files of this folder are one source, in the order of `step.PARTS`. A cluster of 16 programs (CTAs)
// computes one guidance row of one unit: 8 heads times 2 groups of 25 frames. A program computes
// queries, keys and values of its head for its frames, attention, what the head adds to the residual
// stream, 128 hidden channels of the feed-forward, and what 32 input channels add to a convolution.

typedef unsigned int u32;
#define INLINED __device__ __forceinline__

namespace {

constexpr int HEADS = 8, WIDTH = 64, INNER = HEADS * WIDTH, CHANNELS = 256, FRAMES = 50, OWN_FRAMES = 25;
constexpr int MOST_PAGES = 8, WARPS = 16, THREADS = 32 * WARPS;
constexpr int TILES = 4;  // of 8 frames, in a group
constexpr int LAYERS = 4;  // transformers of a level
constexpr int QKV_CHUNKS = 8, OUT_CHUNKS = 2, WIDEN_CHUNKS = 4, NARROW_CHUNKS = 4;

// Floats of the constants: of a transformer, of a resnet, of a level.
constexpr int BIASES = 3 * INNER + CHANNELS + 4 * CHANNELS + CHANNELS;
constexpr int RESNET = 7 * CHANNELS, LEVEL = RESNET + LAYERS * BIASES;

// Elements of the tails in a page, two frames of each row: from `Arguments::tails` on, the inputs, then
// the tails of 256 channels in the order of `page_layout.Layout.sites`: skip, end, final, those of the
// second convolutions of all levels, and the inputs of all levels but the first.
constexpr int IN_TAIL = 0, SKIP_TAIL = 2 * 2 * 320, TAIL = 2 * 2 * CHANNELS;
constexpr int END_TAIL = SKIP_TAIL + TAIL, FINAL_TAIL = END_TAIL + TAIL, H_TAILS = FINAL_TAIL + TAIL;

// Bytes in shared memory. Matrices lie there as blocks of 8 rows x 8 columns (128 bytes), block
// (row / 8, column / 8) at (column / 8) * step + (row / 8) * 128; keys and values as rows of 128 bytes,
// whose 16 bytes c are at c ^ (key % 8).
constexpr int STAGES = 4, STAGE = 16384;          // of the ring of weights
constexpr int COLUMN = TILES * 128;               // step of activations of products
constexpr int SLICE = CHANNELS / HEADS;           // input channels of a program in a convolution
constexpr int STEP = 34 * 16;                     // step of a convolution's input: two frames and 32
constexpr int ACTIVATIONS_BYTES = 8 * STEP;
constexpr int KEY_BLOCK = FRAMES * WIDTH * 2;     // a page's keys of one head
constexpr int SUMS_BYTES = HEADS * 2048;          // of every program [256 channels, 4 frames]
constexpr int MAIL_BYTES = 256;                   // two frames of a convolution's input
// Keys and values of all pages, the own last.
constexpr int RING = 0, KEYS = RING + STAGES * STAGE, VALUES = KEYS + MOST_PAGES * KEY_BLOCK;
constexpr int NORMED = VALUES + MOST_PAGES * KEY_BLOCK, HIDDEN = NORMED + CHANNELS / 8 * COLUMN;
constexpr int SHARES = NORMED;                    // of attention: [400 keys] x 32 frames
constexpr int QUERIES = SHARES + MOST_PAGES * FRAMES / 8 * COLUMN, ATTENDED = QUERIES;
constexpr int RECEIVED = QUERIES + WIDTH / 8 * COLUMN;
constexpr int MOMENTS = RECEIVED + SUMS_BYTES, HIGHEST = MOMENTS + 1024, SUMS = HIGHEST + WARPS * 104;
constexpr int FULL = SUMS + WARPS * 104, EMPTY = FULL + 8 * STAGES;
constexpr int NORMED_BAR = EMPTY + 8 * STAGES, SUMS_BAR = NORMED_BAR + 8, KEYS_BAR = SUMS_BAR + 8;
constexpr int ROOM_BAR = KEYS_BAR + 8, SHORTCUT_BAR = ROOM_BAR + 8, SLICES_BARS = SHORTCUT_BAR + 8;
constexpr int PAGE_IDS = SLICES_BARS + 3 * 8, MAIL = PAGE_IDS + 32, SHARED_BYTES = MAIL + 3 * MAIL_BYTES;
// During a resnet, where keys lie in attention.
constexpr int ACTIVATIONS = KEYS, SHORTCUTS = ACTIVATIONS + 3 * ACTIVATIONS_BYTES;
static_assert(SHORTCUTS + SUMS_BYTES <= VALUES && HIDDEN + 128 / 8 * COLUMN <= QUERIES, "places");
static_assert(FULL % 8 == 0 && MAIL % 16 == 0 && SHORTCUTS % 16 == 0, "alignment");
static_assert(SHARED_BYTES <= 232448, "shared memory of a program");

}  // namespace

struct Arguments {
    const char* inputs;      // bfloat16 [units, 2, 50, 320]
    float* y;                // [units, 2, 50, 256]: the convolution before the last norm
    const char* weights;     // bfloat16 [8, rank_bytes / 2]
    const u32* sizes;        // bytes of the chunks of weights, in the order of their use, and zero
    const float* constants;  // [levels, LEVEL], then the biases of the three other convolutions
    const float* times;      // [levels, 256], of this Euler step
    char* pool;              // bfloat16 pages
    const int* own;          // [units]
    const int* before;       // [units], -1 for none
    const int* pages;        // [units, table]
    const int* counts;       // [units]
    const int* valid;        // [units]
    long long rank_bytes, page, offset, layer_stride, tails;  // elements but for rank_bytes
    int levels, table;
};
