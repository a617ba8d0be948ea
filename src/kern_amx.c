/* AMX: BF16 and MXFP4 products in tiles; all else as with AVX-512.
 *
 * Activations are rounded to BF16 (to nearest even), weights of both forms are BF16 exactly; sums
 * are F32. Numbers below the normal range count as zero, the instruction has it so.
 *
 * Order of additions: columns in steps of 32; a step has two chains from zero, over its even and
 * its odd columns; to the output is added, step by step, the sum of the two. Rows fill tiles of 16,
 * with zeros where there are none: rows do not meet in a sum, so their number does not show.
 *
 * The tables' even and odd panels are just what a tile wants in pairs. Tile registers: 0..3 sums of
 * two row tiles by two output tiles, 4..5 rows, 6..7 weights. */
#include "src/kern_zmm.h"

#define ROWS         192 /* of one turn */
#define STEP_COLUMNS 32
#define CHUNK        512 /* columns of activations rounded at a time */
#define TILE         16
#define TILE_BYTES   64

static const struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config = {.palette = 1,
            .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
            .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

/* Rows and columns of one turn. Sums and rounded rows are padded to whole tiles with zeros. */
struct amx {
    const struct mm *a;
    size_t first_row, rows, first_column, columns;
    float sum[ROWS][STRIP];
    uint16_t x[ROWS][CHUNK];
    float panel[BLOCK * STRIP];
    uint32_t pairs[HALF][STRIP]; /* of columns 2 j (low) and 2 j + 1 */
};

static size_t padded(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* To nearest even; NaN stays NaN. */
INLINE void round_bf16_vector(uint16_t *to, vf x)
{
    typedef uint16_t v16 __attribute__((vector_size(2 * V)));
    vu u = (vu)x, nan = (vu)((u & 0x7fffffffu) > 0x7f800000u);
    vu r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    v16 h = __builtin_convertvector((nan & (u >> 16 | 0x40)) | (~nan & r), v16);
    memcpy(to, &h, sizeof h);
}

static void round_rows(struct amx *m)
{
    size_t columns = padded(m->columns, STEP_COLUMNS);
    for (size_t r = 0; r < padded(m->rows, 2 * TILE); r++) {
        const float *x = m->a->x + (m->first_row + r) * m->a->ldx + m->first_column;
        size_t n = r < m->rows ? m->columns : 0;
        size_t i = 0;
        for (; i + V <= n; i += V) round_bf16_vector(m->x[r] + i, vload(x + i));
        for (; i < n; i++) m->x[r][i] = f32_to_bf16(x[i]);
        memset(m->x[r] + n, 0, (columns - n) * sizeof m->x[r][0]);
    }
}

/* The panel's F32, which are BF16 widened, back to BF16 in pairs. */
static void pair_columns(struct amx *m, size_t n)
{
    for (size_t j = 0; j < padded(n, STEP_COLUMNS) / 2; j++)
        for (size_t o = 0; o < STRIP; o += V) {
            const float *even = m->panel + j * STRIP + o, *odd = even + HALF * STRIP;
            vu low = 2 * j < n ? (vu)vload(even) >> 16 : (vu)vset1(0.0f);
            vu high = 2 * j + 1 < n ? (vu)vload(odd) & 0xffff0000u : (vu)vset1(0.0f);
            low |= high;
            memcpy(&m->pairs[j][o], &low, sizeof low);
        }
}

/* Sums of rows [r, r + 32) by the strip's outputs += their columns [at, at + n) of x times pairs.
 */
static void multiply_tiles(struct amx *m, size_t r, size_t at, size_t n)
{
    enum { SUM_STRIDE = STRIP * sizeof(float), X_STRIDE = CHUNK * sizeof(uint16_t) };
    float *sum = m->sum[r];
    _tile_loadd(0, sum, SUM_STRIDE);
    _tile_loadd(1, sum + TILE, SUM_STRIDE);
    _tile_loadd(2, sum + TILE * STRIP, SUM_STRIDE);
    _tile_loadd(3, sum + TILE * STRIP + TILE, SUM_STRIDE);
    for (size_t k = 0; k < n; k += STEP_COLUMNS) {
        _tile_loadd(4, m->x[r] + at + k, X_STRIDE);
        _tile_loadd(5, m->x[r + TILE] + at + k, X_STRIDE);
        _tile_loadd(6, m->pairs[k / 2], SUM_STRIDE);
        _tile_loadd(7, m->pairs[k / 2] + TILE, SUM_STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum, SUM_STRIDE);
    _tile_stored(1, sum + TILE, SUM_STRIDE);
    _tile_stored(2, sum + TILE * STRIP, SUM_STRIDE);
    _tile_stored(3, sum + TILE * STRIP + TILE, SUM_STRIDE);
}

/* One strip times the rounded rows: y += (= for the first columns) the sums over this chunk. */
static void multiply_strip(struct amx *m, const struct strip *s, size_t o,
                           void (*widen)(const struct tile *t))
{
    size_t bytes = s->outputs * sizeof(float);
    memset(m->sum, 0, padded(m->rows, 2 * TILE) * sizeof m->sum[0]);
    float *y = m->a->y + m->first_row * m->a->ldy + o;
    if (m->first_column)
        for (size_t r = 0; r < m->rows; r++) memcpy(m->sum[r], y + r * m->a->ldy, bytes);
    for (size_t k = 0; k < m->columns; k += BLOCK) {
        struct tile t = {.s = s, .first = m->first_column + k, .panel = m->panel};
        t.n = m->columns - k < BLOCK ? m->columns - k : BLOCK;
        widen(&t);
        pair_columns(m, t.n);
        for (size_t r = 0; r < m->rows; r += 2 * TILE) multiply_tiles(m, r, k, t.n);
    }
    for (size_t r = 0; r < m->rows; r++) memcpy(y + r * m->a->ldy, m->sum[r], bytes);
}

static void amx_run(const struct mm *a, size_t row_bytes, void (*widen)(const struct tile *t))
{
    struct amx m __attribute__((aligned(64)));
    struct strip s;
    m.a = a;
    _tile_loadconfig(&config);
    for (m.first_row = 0; m.first_row < a->rows; m.first_row += ROWS) {
        m.rows = a->rows - m.first_row < ROWS ? a->rows - m.first_row : ROWS;
        for (m.first_column = 0; m.first_column < a->cols; m.first_column += CHUNK) {
            size_t left = a->cols - m.first_column;
            m.columns = left < CHUNK ? left : CHUNK;
            round_rows(&m);
            for (size_t o = a->first; o < a->last; o += STRIP) {
                strip_at(&s, a, row_bytes, o);
                multiply_strip(&m, &s, o, widen);
            }
        }
    }
    _tile_release();
}

static void amx_bf16(const struct mm *a)
{
    amx_run(a, a->cols * 2, widen_bf16);
}

static void amx_mxfp4(const struct mm *a)
{
    amx_run(a, a->cols / 2, widen_mxfp4);
}

/* Multiply-adds of tiles on themselves; four sums, as in a product. */
static double amx_spin(size_t rounds)
{
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(6);
    for (size_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 6);
    }
    _tile_release();
    return 2.0 * 4 * TILE * TILE * STEP_COLUMNS * (double)rounds;
}

const struct kern kern_amx_table = {.name = "amx",
                                    .unrounded = &kern_avx512_table,
                                    .mm_f32 = mm_f32,
                                    .mm_bf16 = amx_bf16,
                                    .mm_mxfp4 = amx_mxfp4,
                                    .spin = amx_spin,
                                    KERN_ROW_FUNCTIONS};
