/* AVX-512 with BF16 products: two columns at a time where weights are BF16 or MXFP4; all else as
 * with AVX-512.
 *
 * Activations are rounded to BF16 (to nearest even), weights of both forms are BF16 exactly; sums
 * are F32. Numbers below the normal range count as zero, the instruction has it so.
 *
 * Order of additions: a pair of neighbouring columns is to kern_mm.h what a column is to other
 * tables, the odd one of the pair is added first: blocks of 512 columns, a chain of every other
 * pair. Pairs travel as the bits of a float. */
#define tile_fma pair_fma
#define FMA_NAME "vdpbf16ps"
#include "src/kern.h"

#include <immintrin.h>

static inline __attribute__((always_inline)) __m512 pair_fma(__m512 x, __m512 w, __m512 sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}

#define pack_columns pack_pairs
#define UNIT         2
static void pack_pairs(float *to, const float *x, size_t n);
#define scaled scale_pairs
static inline __m512 scale_pairs(__m512 pairs, const float *scale);

/* One pair: to the sum of its chain. */
#define dword_fma(x, k, j, dword, sum)                                                             \
    fma_from((x) + (j) % 2 * HALF + ((k) + (j)) / 2, (vf)(dword), (sum)[(j) % 2])

#include "src/kern_zmm.h"

/* Scales for which every value is a normal BF16 number. */
#define LEAST 0x1p-125f
#define MOST  0x1p125f

/* Times a power of two; zeros stay. */
INLINE vf scale_pairs(vf pairs, const float *scale)
{
    vu e = (vu)vload(scale) >> 16;
    vb by = (vb)((vh)(e | e << 16) - 0x3f80);
    __mmask32 some = _mm512_test_epi16_mask((vb)pairs, _mm512_set1_epi16(0x7fff));
    return (vf)_mm512_mask_add_epi16((vb)pairs, some, (vb)pairs, by);
}

/* Of n columns; the last pair is filled up with a zero. */
static void pack_pairs(float *to, const float *x, size_t n)
{
    for (; n >= 4 * V; n -= 4 * V, x += 4 * V, to += V) {
        vf a = (vf)_mm512_cvtne2ps_pbh(vload(x + V), vload(x));
        part_columns(to, a, (vf)_mm512_cvtne2ps_pbh(vload(x + 3 * V), vload(x + 2 * V)));
    }
    for (size_t i = 0; i < n; i += 2) {
        uint32_t low = f32_to_bf16(x[i]), high = i + 1 < n ? f32_to_bf16(x[i + 1]) : 0;
        memcpy(to + i / 2 % 2 * HALF + i / 4, (uint32_t[]){high << 16 | low}, sizeof *to);
    }
}

/* Pairs of BF16 lie in memory as they are wanted: to be turned like F32. */
static void pairs_bf16(const struct tile *t)
{
    bool half = t->s->row_bytes % 4 && (t->first + t->n) * 4 > t->s->row_bytes;
    struct tile whole = *t;
    whole.n -= half;
    widen_f32(&whole);
    if (!half) return;
    for (size_t i = 0; i < STRIP; i++) {
        uint16_t last;
        memcpy(&last, t->s->w[i] + t->s->row_bytes - sizeof last, sizeof last);
        memcpy(panel_at(t, whole.n) + i, (uint32_t[]){last}, sizeof(float));
    }
}

/* Any scales, one by one. */
static void plain_pairs(const struct tile *t)
{
    for (size_t i = 0; i < STRIP; i++)
        for (size_t k = 0; k < t->n; k += 16) {
            float group[32];
            kern_widen_mxfp4(group, t->s->w[i] + t->first + k, t->s->scale[i] + (t->first + k) / 16,
                             32);
            for (size_t j = 0; j < 16; j++) {
                uint32_t low = f32_to_bf16(group[2 * j]), high = f32_to_bf16(group[2 * j + 1]);
                memcpy(panel_at(t, k + j) + i, (uint32_t[]){high << 16 | low}, sizeof(float));
            }
        }
}

/* A byte of W is a pair: its low half the even column, its high half the odd one. Each is brought
 * to both halves of its dword. */
INLINE void group_pairs(const struct tile *t, size_t k, const float *scale, struct chain chain[2],
                        struct use use)
{
    static const uint8_t twice[4][16] = {
        {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12},
        {1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13},
        {2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14},
        {3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15},
    };
    const vh high = (vh)((vu){0} + (4u << 16));
    vb v[2][4];
    fetch_next(t->s, t->first + k);
    foreach (h, 2) turn_dwords(v[h], t->s, (size_t)h * V, t->first + k);
    foreach (j, 4)
        foreach (i, 4) {
            vf w[2];
            foreach (h, 2) {
                vh byte = (vh)look_up(v[h][j], every_lane(twice[i]));
                w[h] = (vf)look_up16(codes, (vb)(byte >> high));
            }
            put(t, i % 2, k / 2 + 2 * (size_t)j + (size_t)i / 2, w, scale, chain, use);
        }
}

static void pairs_mxfp4(const struct tile *t)
{
    float scale[BLOCK / GROUP][STRIP];
    widen_scales(t, scale);
    if (scales_within(t, scale, LEAST, MOST))
        panel_groups(t, scale, group_pairs);
    else
        plain_pairs(t);
}

static void direct_pairs(const struct tile *t, size_t rows)
{
    direct_run(t, rows, pairs_mxfp4, group_pairs);
}

static void direct_pairs_bf16(const struct tile *t, size_t rows)
{
    direct_line_run(t, rows, pairs_bf16);
}

static void pairs_mm_bf16(const struct mm *a)
{
    mm_run(a, a->cols * 2, pairs_bf16, direct_pairs_bf16, 2 * DIRECT_ROWS);
}

static void pairs_mm_mxfp4(const struct mm *a)
{
    mm_run(a, a->cols / 2, pairs_mxfp4, direct_pairs, DIRECT_ROWS);
}

/* As spin, on pairs. */
static double pairs_spin(size_t rounds)
{
    vf a[12], one = (vf)(vu)((vu){0} + 0x3f803f80u);
    volatile float sink;
    float t[V];
    foreach (i, 12) a[i] = vset1((float)i);
    for (size_t r = 0; r < rounds; r++)
        foreach (i, 12) a[i] = pair_fma(one, one, a[i]);
    foreach (i, 11) a[11] += a[i];
    vstore(t, a[11]);
    sink = t[0];
    (void)sink;
    return 2.0 * 12 * 2 * V * (double)rounds;
}

const struct kern kern_avx512bf16_table = {.name = "avx512bf16",
                                           .unrounded = &kern_avx512_table,
                                           .mm_f32 = kern_avx512_f32,
                                           .mm_bf16 = pairs_mm_bf16,
                                           .mm_mxfp4 = pairs_mm_mxfp4,
                                           .spin = pairs_spin,
                                           KERN_ROW_FUNCTIONS};
