// One decode step of the speech-token model for one row, from the embedding of its input to the
// logits, as one launch of one program per multiprocessor. Programs wait for each other, so all of
// them have to be on the device at once.
//
// The last warp of a program copies the program's weights from memory into a ring of stages in
// shared memory, in the order in which they are used. It does not depend on the other programs, so
// memory delivers weights while the eight warps that multiply wait for the results of others.
//
// Constants by -D: LAYERS, HIDDEN, MLP, HEADS, KEY_HEADS, STAGES, MOST_TILES (of gate and up, of one
// program), SHARED (bytes of shared memory behind the ring).

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARPS = 8;
constexpr int D = 64;
constexpr int PAGE = 64;
constexpr int PAGE_BYTES = 2 * PAGE * D * 2;
constexpr int GROUP = HEADS / KEY_HEADS;
constexpr int QUERY = HEADS * D;
constexpr int WIDTH = QUERY + 2 * KEY_HEADS * D;
// Weights are in fragments of 512 bytes, for one instruction of the matrix units: 16 rows by 16
// columns (gate and up), or 8 rows by 32 columns, of which the first 16 are multiplied by one column
// of the other operand and the last 16 by the next. A unit is half a fragment. Warp w multiplies the
// w-th eighth of the columns, and the sums of the warps are added in order, so a row's numbers are
// the same at every run.
constexpr int UNIT = 256;
constexpr int STEPS = HIDDEN / 16 / WARPS;
constexpr int FIRST_STEPS = 4;
constexpr int DEEP = MLP / 16 / WARPS;
constexpr int DEEP_CHUNK = 8;
constexpr int DEEP_CHUNKS = (DEEP + DEEP_CHUNK - 1) / DEEP_CHUNK;
constexpr int STAGE = 16384;
constexpr int TILE = STEPS * WARPS * UNIT;
constexpr int HEAD_ROWS = 4;
// Programs that share the keys of a key head; a lane of the copying warp has the number of one page.
constexpr int MOST_PARTS = 4;
constexpr int STATE_COLUMNS = 16;
static_assert(HIDDEN == 7 * 128 && QUERY == HIDDEN && LAYERS < 32, "width");
static_assert(MLP == DEEP * 128 && DEEP % 2 == 0 && GROUP <= 8, "shape");

// Buffers for exchange between programs, in words of 8 bytes.
constexpr int AFTER_DOWN = 0;
constexpr int AFTER_OUT = AFTER_DOWN + HIDDEN / 2;
constexpr int PROJECTED = AFTER_OUT + HIDDEN / 2;
constexpr int GATED = PROJECTED + WIDTH / 2;
constexpr int LAST = GATED + MLP / 2;
constexpr int PARTS = LAST + HIDDEN;

// What a program computes: `services.llm.gpu.weight_order.Program`.
struct Plan {
    long long weights;
    long long bytes;
    int own;
    int rank;
    int heads_count;
    int heads[2];
    int gated_count;
    int gated[6];
    int first_id;
    int ids;
};

struct Arguments {
    const unsigned char* weights;
    const Plan* plans;
    const float* bias;
    const float* head_bias;
    const float* cosines;
    const float* sines;
    const u32* table;
    unsigned char* cache;
    long long layer_bytes;
    const int* pages;
    const int* state;
    const int* rows;
    u64* exchange;
    u32* epoch;
    float* logits;
    int most_pages;
    float epsilon;
};

// What a thread that adds up sums of the first product needs. kept: place in the cache of a layer,
// -1 for a row of the queries.
struct HeadsRow {
    long long kept;
    int row;
    float cosine;
    float sine;
};

// What all threads of a program have to know in every layer.
struct Task {
    int own;
    int heads_count;
    int gated_count;
    int position;
    int parts;
    int part;
    int key_head;
    int pages;
    u32 step;
};

struct Shared {
    u64 full[STAGES];
    u64 empty[STAGES];
    // Sums of eight warps are read 16 bytes at a time.
    alignas(16) float sums[2][MOST_TILES * 16 * WARPS];
    float squares[2][WARPS];
    float fades[WARPS][8];
    float peaks[WARPS][8];
    float weights[WARPS][8];
    HeadsRow heads[16];
    int gated[MOST_TILES * 16];
    float residual[8];
    Task task;
    u64 began;
};
static_assert(sizeof(Shared) <= SHARED, "shared memory");
static_assert((sizeof(float) * WARPS) % 16 == 0 && STAGE % 16 == 0, "alignment");

extern __shared__ __align__(1024) unsigned char memory[];

__device__ __forceinline__ Shared& shared_state() { return *(Shared*)(memory + STAGES * STAGE); }
