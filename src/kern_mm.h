/* The matrix products of one instruction set, written once over a few vector primitives.
 *
 * Included by each table's .c file, which has defined what src/kern_math.h needs and TILE_ROWS, the
 * rows of a full tile (<= 12), and defines widen_f32, widen_bf16 and widen_mxfp4 behind.
 *
 * Order of additions, the same for every row and output: columns fall into blocks of BLOCK; a block
 * has two chains of fused multiply-adds from zero, over its even and over its odd columns; to the
 * output are added, block by block, the even and then the odd sum. A strip is STRIP outputs side by
 * side in two vectors. A block of it is widened to F32 in cache, columns outermost, once for the
 * rows that are packed together; a tile multiplies up to TILE_ROWS rows with it. Rows and outputs
 * never meet in a sum, so tile shapes and splits do not show. */
#ifndef NS_KERN_MM_H
#define NS_KERN_MM_H

#include "src/kern_math.h"

#define STRIP (2 * V)
#define BLOCK 256
#define HALF  (BLOCK / 2)
#define PACK  ((size_t)128 << 10) /* floats of x at a time: with a panel in the second cache */

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
    const float *x; /* [rows][2][HALF]: even columns, odd columns */
    bool tame;      /* x is, see is_tame */
    float *y;       /* at the strip's first output */
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

/* For few rows a panel does not pay: values are multiplied as they are decoded, for up to
 * DIRECT_ROWS rows at a time; those of BF16, which are cheap, even twice, where there is turn_line
 * (kern_turn.h). A table without such code leaves DIRECT_ROWS undefined. */
#ifdef DIRECT_ROWS
static void direct_mxfp4(const struct tile *t, size_t rows);
#else
#define DIRECT_ROWS  1
#define direct_mxfp4 NULL
#endif
#ifdef turn_line
static void direct_bf16(const struct tile *t, size_t rows);
#else
#define direct_bf16 NULL
#endif

/* What a tile does with a column of x, of W and a sum. kern_avx512bf16.c has two columns in one. */
#ifndef tile_fma
#define tile_fma vfma
#endif

/* The same with x in memory; and with both vectors of W and their sums. */
#ifndef fma_from
#define fma_from(x, w, sum) sum = tile_fma(vset1(*(x)), w, sum)
#endif
#ifndef strip_fma
#define strip_fma(x, w0, w1, sum0, sum1)                                                           \
    do {                                                                                           \
        vf every = vset1(*(x));                                                                    \
        sum0 = tile_fma(every, w0, sum0);                                                          \
        sum1 = tile_fma(every, w1, sum1);                                                          \
    } while (0)
#endif

#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define ZERO(i)      vf a##i = vset1(0.0f), b##i = a##i;
#define STEP(i)                                                                                    \
    if (rows > i) strip_fma(x + i * BLOCK, w0, w1, a##i, b##i);
#define ADD(i)                                                                                     \
    if (rows > i) {                                                                                \
        float *y = t->y + i * t->ldy;                                                              \
        vstore(y, vload(y) + a##i);                                                                \
        vstore(y + V, vload(y + V) + b##i);                                                        \
    }

/* The even (odd = 0) or odd columns for `rows` rows, a constant. */
INLINE void tile_half(const struct tile *t, int rows, size_t odd)
{
    const float *x = t->x + odd * HALF, *w = t->panel + odd * HALF * STRIP;
    EACH_ROW(ZERO)
    for (size_t n = (t->n + 1 - odd) / 2; n; n--, x++, w += STRIP) {
        vf w0 = vload(w), w1 = vload(w + V);
        EACH_ROW(STEP)
    }
    EACH_ROW(ADD)
}

#define EACH_FEW(DO) DO(0) DO(1) DO(2)
#define ZERO2(i)     ZERO(i) vf c##i = a##i, d##i = a##i;
#define STEP2(i)                                                                                   \
    if (rows > i) {                                                                                \
        strip_fma(x + i * BLOCK, w0, w1, a##i, b##i);                                              \
        strip_fma(x + i * BLOCK + HALF, w2, w3, c##i, d##i);                                       \
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
    for (size_t n = t->n / 2; n; n--, x++, w += STRIP, odd += STRIP) {
        vf w0 = vload(w), w1 = vload(w + V), w2 = vload(odd), w3 = vload(odd + V);
        EACH_FEW(STEP2)
    }
    EACH_FEW(ADD2)
}

#define CASE(i)                                                                                    \
    case i + 1:                                                                                    \
        if (i < TILE_ROWS) tile_half(t, i + 1, odd);                                               \
        break;

INLINE void tile_rows(const struct tile *t, size_t rows, size_t odd)
{
    switch (rows) {
        EACH_ROW(CASE)
    }
}

static void tile_even(const struct tile *t, size_t rows)
{
    tile_rows(t, rows, 0);
}

static void tile_odd(const struct tile *t, size_t rows)
{
    tile_rows(t, rows, 1);
}

static void tile_few(const struct tile *t, size_t rows)
{
    if (rows == 1)
        tile_both(t, 1);
    else if (rows == 2)
        tile_both(t, 2);
    else
        tile_both(t, 3);
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

/* All rows, in tiles of nearly equal height, `most` rows or fewer. */
static void tiles_run(struct tile t, size_t rows, tile_fn run, size_t most)
{
    for (size_t tiles = (rows + most - 1) / most; tiles; tiles--) {
        size_t r = (rows + tiles - 1) / tiles;
        if (t.s->outputs == STRIP)
            run(&t, r);
        else
            tile_part(&t, r, t.s->outputs, run);
        t.x += r * BLOCK;
        t.y += r * t.ldy;
        rows -= r;
    }
}

/* Half a panel, for it stays in the first cache, and then the other. */
static void tile_run(const struct tile *t, size_t rows)
{
    if (rows <= 3 && t->n % 2 == 0) {
        tiles_run(*t, rows, tile_few, TILE_ROWS);
    } else {
        tiles_run(*t, rows, tile_even, TILE_ROWS);
        tiles_run(*t, rows, tile_odd, TILE_ROWS);
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

#if V == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif V == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD  1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVEN 0, 2, 4, 6
#define ODD  1, 3, 5, 7
#endif

/* 2 V columns of x to where a tile has them. */
INLINE void part_columns(float *to, vf a, vf b)
{
    vstore(to, (vf)__builtin_shufflevector(a, b, EVEN));
    vstore(to + HALF, (vf)__builtin_shufflevector(a, b, ODD));
}

/* Columns [first, first + n), n <= BLOCK, of a row as a tile has them. */
#ifndef pack_columns
INLINE void pack_columns(float *to, const float *x, size_t n)
{
    for (; n >= 2 * V; n -= 2 * V, x += 2 * V, to += V) part_columns(to, vload(x), vload(x + V));
    for (size_t i = 0; i < n; i++) to[i % 2 * HALF + i / 2] = x[i];
}
#define UNIT 1 /* columns of x in one of a tile */
#endif

/* Sums may run in units of a group's scale, with the same bits in the end, as long as no number on
 * the way leaves the normal range in one unit alone. That holds where scales are from TAME_LEAST to
 * TAME_MOST and every |x| is 0 or in [2^-57, 2^68): a sum is a multiple of 2^(-57 - 24) times the
 * least scale (or the ratio of two), and under 2^(68 + 13) times the largest. */
#define TAME_LEAST 0x1p-30f
#define TAME_MOST  0x1p15f

INLINE bool is_tame(const float *x, size_t n)
{
    const vi low = (vi)vset1(0x1p-57f), high = (vi)vset1(0x1p68f);
    vi wild = {0};
    int32_t any[V];
    for (size_t i = 0; i < n; i += V) {
        vi a = (vi)vabs(n - i >= V ? vload(x + i) : load_part(x + i, n - i));
        wild |= (a != 0) & ((a < low) | (a >= high));
    }
    memcpy(any, &wild, sizeof any);
    foreach (j, V) any[0] |= any[j];
    return !any[0];
}

/* One turn of mm_run: rows and blocks of columns that are packed together. */
struct turn {
    const struct mm *a;
    size_t first_row, rows, first_block, end_block, row_bytes;
    void (*widen)(const struct tile *t);
    tile_fn few;
    float *x; /* [blocks][rows][BLOCK] */
    bool tame[PACK / BLOCK];
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void turn_pack(struct turn *u)
{
    float *to = u->x;
    for (size_t b = u->first_block; b < u->end_block; b++) {
        size_t at = b * BLOCK * UNIT, n = least(u->a->cols - at, BLOCK * UNIT);
        bool tame = u->few && u->a->scale; /* only sums in units of scales ask */
        for (size_t r = 0; r < u->rows; r++, to += BLOCK) {
            const float *x = u->a->x + (u->first_row + r) * u->a->ldx + at;
            pack_columns(to, x, n);
            tame = tame && is_tame(x, n);
        }
        u->tame[b - u->first_block] = tame;
    }
}

static void turn_run(struct turn *u)
{
    const struct mm *a = u->a;
    float panel[BLOCK * STRIP] __attribute__((aligned(64)));
    struct strip s;
    turn_pack(u);
    for (size_t r = 0; r < u->rows && u->first_block == 0; r++)
        memset(a->y + (u->first_row + r) * a->ldy + a->first, 0,
               (a->last - a->first) * sizeof *a->y);
    for (size_t o = a->first; o < a->last; o += STRIP) {
        strip_at(&s, a, u->row_bytes, o);
        struct tile t = {.s = &s, .panel = panel, .x = u->x, .ldy = a->ldy};
        t.y = a->y + u->first_row * a->ldy + o;
        for (size_t b = u->first_block; b < u->end_block; b++, t.x += u->rows * BLOCK) {
            t.first = b * BLOCK;
            t.n = least((a->cols + UNIT - 1) / UNIT - t.first, BLOCK);
            t.tame = u->tame[b - u->first_block];
            if (u->few) {
                tiles_run(t, u->rows, u->few, DIRECT_ROWS);
            } else {
                u->widen(&t);
                tile_run(&t, u->rows);
            }
        }
    }
}

/* Few rows whole, so that W is read as it lies; of many a block of columns at a time, so that many
 * share a panel. Up to direct_rows rows go to `direct`, DIRECT_ROWS at a time, without a panel. */
static void mm_run(const struct mm *a, size_t row_bytes, void (*widen)(const struct tile *t),
                   tile_fn direct, size_t direct_rows)
{
    float x[PACK] __attribute__((aligned(64)));
    size_t blocks = (a->cols + BLOCK * UNIT - 1) / (BLOCK * UNIT);
    bool whole = a->rows * blocks * BLOCK <= PACK;
    size_t width = whole ? blocks : 1, most = whole ? a->rows : PACK / BLOCK;
    struct turn u = {.a = a, .row_bytes = row_bytes, .widen = widen, .x = x};
    if (a->rows <= direct_rows) u.few = direct;
    for (u.first_row = 0; u.first_row < a->rows; u.first_row += most) {
        u.rows = a->rows - u.first_row < most ? a->rows - u.first_row : most;
        for (u.first_block = 0; u.first_block < blocks; u.first_block = u.end_block) {
            u.end_block = u.first_block + width;
            turn_run(&u);
        }
    }
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

#define GROUP (32 / UNIT) /* columns of a tile under one scale of MXFP4 */

/* The scales of the tile's groups as floats: scale[group][output]. The exponents of four groups of
 * a row are one dword; each is shifted to where a float has its own, 0 becoming 2^-127. */
INLINE void widen_scales(const struct tile *t, float scale[BLOCK / GROUP][STRIP])
{
    size_t first = t->first / GROUP, n = t->n / GROUP;
    uint32_t e[BLOCK / GROUP / 4][STRIP] = {0};
    if (n == BLOCK / GROUP)
        foreach (i, STRIP)
            foreach (g, BLOCK / GROUP / 4) memcpy(&e[g][i], t->s->scale[i] + first + 4 * g, 4);
    else
        for (size_t g = 0; g < n; g++)
            for (size_t i = 0; i < STRIP; i++)
                e[g / 4][i] |= (uint32_t)t->s->scale[i][first + g] << g % 4 * 8;
    for (size_t i = 0; i < STRIP; i += V)
        foreach (g, BLOCK / GROUP) {
            vi four, smallest = (vi)vset1(0x1p-127f);
            memcpy(&four, &e[g / 4][i], sizeof four);
            vi f = (g % 4 == 3 ? four >> 1 : four << (23 - g % 4 * 8)) & 0x7f800000;
            vstore(scale[g] + i, pick(f > smallest, (vf)f, (vf)smallest));
        }
}

/* Whether all scales of a tile are in [low, high]. */
INLINE bool scales_within(const struct tile *t, float scale[BLOCK / GROUP][STRIP], float low,
                          float high)
{
    vi beyond = {0};
    int32_t any[V];
    for (size_t g = 0; g < t->n / GROUP; g++)
        for (size_t i = 0; i < STRIP; i += V) {
            vf s = vload(scale[g] + i);
            beyond |= (s < vset1(low)) | (s > vset1(high));
        }
    memcpy(any, &beyond, sizeof any);
    foreach (j, V) any[0] |= any[j];
    return !any[0];
}

static inline void mm_f32(const struct mm *a)
{
    mm_run(a, a->cols * 4, widen_f32, NULL, 0);
}

static inline void mm_bf16(const struct mm *a)
{
    mm_run(a, a->cols * 2, widen_bf16, direct_bf16, 2 * DIRECT_ROWS);
}

static inline void mm_mxfp4(const struct mm *a)
{
    mm_run(a, a->cols / 2, widen_mxfp4, direct_mxfp4, DIRECT_ROWS);
}

#define KERN_ROW_FUNCTIONS                                                                         \
    .dot = dot, .axpy = axpy, .mix = mix, .rms = rms, .softmax = softmax, .situ = situ,            \
    .silu = silu, .sigmoid = sigmoid, .gelu_tanh = gelu_tanh, .gelu_erf = gelu_erf,                \
    .exp = exponential, .round_bf16 = round_row, .scale_max = scale_max, .delta_step = delta_step
#define KERN_FUNCTIONS                                                                             \
    .mm_f32 = mm_f32, .mm_bf16 = mm_bf16, .mm_mxfp4 = mm_mxfp4, .spin = spin, KERN_ROW_FUNCTIONS

#endif
