/* The matrix products of one instruction set, written once over a few vector primitives.
 *
 * Included by each table's .c file, which has defined what src/kern_math.h needs and TILE_ROWS, the
 * rows of a full tile (<= 12), and defines widen_f32, widen_bf16 and widen_mxfp4 behind.
 *
 * Order of additions, the same for every row and output: columns fall into blocks of BLOCK; a block
 * has two chains of fused multiply-adds from zero, over its even and over its odd columns; to the
 * output are added, block by block, the even and then the odd sum. A strip is STRIP outputs side by
 * side in two vectors. A block of it is widened to F32 in cache, columns outermost, once for up to
 * ROWS rows; a tile multiplies up to TILE_ROWS rows with it. Rows and outputs never meet in a sum,
 * so tile shapes and splits do not show. */
#ifndef NS_KERN_MM_H
#define NS_KERN_MM_H

#include "src/kern_math.h"

#define STRIP (2 * V)
#define BLOCK 256
#define HALF  (BLOCK / 2)
#define ROWS  192 /* their pages must not overflow the TLB, nor their columns the second cache */

/* STRIP rows of W; those past the last output repeat the last one and are not stored. */
struct strip {
    const uint8_t *w[STRIP];
    const uint8_t *scale[STRIP];
    size_t row_bytes, outputs;
};

/* Columns [first, first + n), n <= BLOCK, of a strip and the rows to multiply with them. */
struct tile {
    const struct strip *s;
    size_t first, n;
    float *panel;   /* [2][HALF][STRIP]: even columns, odd columns */
    const float *x; /* at column `first` */
    size_t ldx;
    float *y; /* at the strip's first output */
    size_t ldy;
};

/* Fill the panel from W. */
static void widen_f32(const struct tile *t);
static void widen_bf16(const struct tile *t);
static void widen_mxfp4(const struct tile *t);

/* Ask for what the next strip has where this one has bytes [at, at + 16) of its rows. The rows lie
 * behind each other, so both are one piece, which no prefetcher of the CPU sees in the way it is
 * read. Past the end of W it asks for what is not used. */
INLINE void fetch_next(const struct strip *s, size_t at)
{
    uintptr_t next = (uintptr_t)s->w[0] + STRIP * (s->row_bytes + at);
    foreach (i, STRIP / 4) __builtin_prefetch((const void *)(next + 64 * (size_t)i));
}

/* For up to DIRECT_ROWS rows a panel of MXFP4 does not pay: its values are multiplied as they are
 * decoded. A table without such code leaves DIRECT_ROWS undefined. */
#ifdef DIRECT_ROWS
static void direct_mxfp4(const struct tile *t, size_t rows);
#else
#define DIRECT_ROWS  0
#define direct_mxfp4 tile_run
#endif

/* What a tile does with a column of x, of W and a sum. kern_avx512bf16.c has two columns in one. */
#ifndef tile_fma
#define tile_fma vfma
#endif

#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define ZERO(i)      vf a##i = vset1(0.0f), b##i = a##i;
#define STEP(i)                                                                                    \
    if (rows > i) {                                                                                \
        vf s = vset1(x[i * t->ldx]);                                                               \
        a##i = tile_fma(s, w0, a##i);                                                              \
        b##i = tile_fma(s, w1, b##i);                                                              \
    }
#define ADD(i)                                                                                     \
    if (rows > i) {                                                                                \
        float *y = t->y + i * t->ldy;                                                              \
        vstore(y, vload(y) + a##i);                                                                \
        vstore(y + V, vload(y + V) + b##i);                                                        \
    }

/* The even (odd = 0) or odd columns for `rows` rows, a constant. */
INLINE void tile_half(const struct tile *t, int rows, size_t odd)
{
    const float *x = t->x + odd, *w = t->panel + odd * HALF * STRIP;
    EACH_ROW(ZERO)
    for (size_t n = (t->n + 1 - odd) / 2; n; n--, x += 2, w += STRIP) {
        vf w0 = vload(w), w1 = vload(w + V);
        EACH_ROW(STEP)
    }
    EACH_ROW(ADD)
}

#define EACH_FEW(DO) DO(0) DO(1) DO(2)
#define ZERO2(i)     ZERO(i) vf c##i = a##i, d##i = a##i;
#define STEP2(i)                                                                                   \
    if (rows > i) {                                                                                \
        vf s = vset1(x[i * t->ldx]), q = vset1(x[i * t->ldx + 1]);                                 \
        a##i = tile_fma(s, w0, a##i);                                                              \
        b##i = tile_fma(s, w1, b##i);                                                              \
        c##i = tile_fma(q, w2, c##i);                                                              \
        d##i = tile_fma(q, w3, d##i);                                                              \
    }
#define ADD2(i)                                                                                    \
    if (rows > i) {                                                                                \
        float *y = t->y + i * t->ldy;                                                              \
        vstore(y, vload(y) + a##i + c##i);                                                         \
        vstore(y + V, vload(y + V) + b##i + d##i);                                                 \
    }

/* Both chains at a time, for an even number of columns: one chain each of few rows would not fill
 * the pipeline. */
INLINE void tile_both(const struct tile *t, int rows)
{
    const float *x = t->x, *w = t->panel, *odd = w + HALF * STRIP;
    EACH_FEW(ZERO2)
    for (size_t n = t->n / 2; n; n--, x += 2, w += STRIP, odd += STRIP) {
        vf w0 = vload(w), w1 = vload(w + V), w2 = vload(odd), w3 = vload(odd + V);
        EACH_FEW(STEP2)
    }
    EACH_FEW(ADD2)
}

INLINE void tile_rows(const struct tile *t, int rows)
{
    if (rows <= 3 && t->n % 2 == 0) {
        tile_both(t, rows);
    } else {
        tile_half(t, rows, 0);
        tile_half(t, rows, 1);
    }
}

static void tile_run(const struct tile *t, size_t rows)
{
    switch (rows) {
#define CASE(i)                                                                                    \
    case i + 1:                                                                                    \
        if (i < TILE_ROWS) tile_rows(t, i + 1);                                                    \
        break;
        EACH_ROW(CASE)
    }
}

typedef void (*tile_fn)(const struct tile *t, size_t rows);

/* A tile whose strip has only n < STRIP outputs to store. */
static void tile_part(const struct tile *t, size_t rows, size_t n, tile_fn run)
{
    float y[TILE_ROWS * STRIP] = {0};
    struct tile p = *t;
    p.y = y;
    p.ldy = STRIP;
    for (size_t r = 0; r < rows; r++) memcpy(y + r * STRIP, t->y + r * t->ldy, n * sizeof *y);
    run(&p, rows);
    for (size_t r = 0; r < rows; r++) memcpy(t->y + r * t->ldy, y + r * STRIP, n * sizeof *y);
}

/* All rows, in tiles of nearly equal height. */
static void block_run(struct tile t, size_t rows, size_t outputs, tile_fn run)
{
    for (size_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS; tiles; tiles--) {
        size_t r = (rows + tiles - 1) / tiles;
        if (outputs == STRIP)
            run(&t, r);
        else
            tile_part(&t, r, outputs, run);
        t.x += r * t.ldx;
        t.y += r * t.ldy;
        rows -= r;
    }
}

static void strip_at(struct strip *s, const struct mm *a, size_t row_bytes, size_t o)
{
    s->row_bytes = row_bytes;
    s->outputs = a->last - o < STRIP ? a->last - o : STRIP;
    for (size_t i = 0; i < STRIP; i++) {
        size_t at = o + (i < s->outputs ? i : s->outputs - 1);
        s->w[i] = (const uint8_t *)a->w + at * row_bytes;
        s->scale[i] = a->scale ? a->scale + at * (row_bytes / 16) : NULL;
    }
}

/* Columns [from, to) of W, from a multiple of BLOCK, with x beginning at column `from`: from 0 they
 * set y, else they are added. Up to DIRECT_ROWS rows go to `direct`, if there is one, without a
 * panel. */
static void mm_columns(const struct mm *a, size_t from, size_t to, size_t row_bytes,
                       void (*widen)(const struct tile *t), tile_fn direct)
{
    float panel[BLOCK * STRIP] __attribute__((aligned(64)));
    struct strip s;
    for (size_t r = 0; r < a->rows; r += ROWS) {
        size_t rows = a->rows - r < ROWS ? a->rows - r : ROWS;
        bool few = direct && rows <= DIRECT_ROWS;
        for (size_t o = a->first; o < a->last; o += STRIP) {
            strip_at(&s, a, row_bytes, o);
            struct tile t = {.s = &s, .panel = panel, .ldx = a->ldx, .ldy = a->ldy};
            t.y = a->y + r * a->ldy + o;
            for (size_t i = 0; i < rows && from == 0; i++)
                memset(t.y + i * a->ldy, 0, s.outputs * sizeof *t.y);
            for (t.first = from; t.first < to; t.first += BLOCK) {
                t.n = to - t.first < BLOCK ? to - t.first : BLOCK;
                t.x = a->x + r * a->ldx + (t.first - from);
                if (!few) widen(&t);
                block_run(t, rows, s.outputs, few ? direct : tile_run);
            }
        }
    }
}

static inline void mm_run(const struct mm *a, size_t row_bytes, void (*widen)(const struct tile *t),
                          tile_fn direct)
{
    mm_columns(a, 0, a->cols, row_bytes, widen, direct);
}

/* The widening below takes columns [k, t->n) one by one: for tables and ends without better. */

INLINE float *panel_at(const struct tile *t, size_t column)
{
    return t->panel + (column % 2 * HALF + column / 2) * STRIP;
}

INLINE void plain_f32(const struct tile *t, size_t k)
{
    for (; k < t->n; k++)
        for (size_t i = 0; i < STRIP; i++)
            memcpy(panel_at(t, k) + i, t->s->w[i] + (t->first + k) * 4, 4);
}

INLINE void plain_bf16(const struct tile *t, size_t k)
{
    for (; k < t->n; k++)
        for (size_t i = 0; i < STRIP; i++) {
            uint16_t b;
            memcpy(&b, t->s->w[i] + (t->first + k) * 2, 2);
            panel_at(t, k)[i] = bf16_to_f32(b);
        }
}

/* The scales of the tile's groups as floats: scale[group][output]. The exponents of four groups of
 * a row are one dword; each is shifted to where a float has its own, 0 becoming 2^-127. */
INLINE void widen_scales(const struct tile *t, float scale[BLOCK / 32][STRIP])
{
    size_t first = t->first / 32, n = t->n / 32;
    uint32_t e[2][STRIP] = {0};
    if (n == BLOCK / 32)
        foreach (i, STRIP) {
            memcpy(&e[0][i], t->s->scale[i] + first, 4);
            memcpy(&e[1][i], t->s->scale[i] + first + 4, 4);
        }
    else
        for (size_t g = 0; g < n; g++)
            for (size_t i = 0; i < STRIP; i++)
                e[g / 4][i] |= (uint32_t)t->s->scale[i][first + g] << g % 4 * 8;
    for (size_t i = 0; i < STRIP; i += V)
        foreach (g, BLOCK / 32) {
            vi four, least = (vi)vset1(0x1p-127f);
            memcpy(&four, &e[g / 4][i], sizeof four);
            vi f = (g % 4 == 3 ? four >> 1 : four << (23 - g % 4 * 8)) & 0x7f800000;
            vstore(scale[g] + i, pick(f > least, (vf)f, (vf)least));
        }
}

static inline void mm_f32(const struct mm *a)
{
    mm_run(a, a->cols * 4, widen_f32, NULL);
}

static inline void mm_bf16(const struct mm *a)
{
    mm_run(a, a->cols * 2, widen_bf16, NULL);
}

static inline void mm_mxfp4(const struct mm *a)
{
    mm_run(a, a->cols / 2, widen_mxfp4, direct_mxfp4);
}

#define KERN_ROW_FUNCTIONS                                                                         \
    .dot = dot, .axpy = axpy, .mix = mix, .rms = rms, .softmax = softmax, .situ = situ,            \
    .silu = silu, .sigmoid = sigmoid, .gelu_tanh = gelu_tanh, .gelu_erf = gelu_erf,                \
    .exp = exponential, .round_bf16 = round_row, .scale_max = scale_max, .delta_step = delta_step
#define KERN_FUNCTIONS                                                                             \
    .mm_f32 = mm_f32, .mm_bf16 = mm_bf16, .mm_mxfp4 = mm_mxfp4, .spin = spin, KERN_ROW_FUNCTIONS

#endif
