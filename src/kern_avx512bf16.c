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
#include "src/kern.h"

#include <immintrin.h>

static inline __attribute__((always_inline)) __m512 pair_fma(__m512 x, __m512 w, __m512 sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
}

#include "src/kern_zmm.h"

#define PAIRS                                                                                      \
    ((size_t)96 << 10)      /* of rounded activations at a time: with a panel in the second cache */
#define GROUPS (BLOCK / 16) /* of MXFP4 in a block */
#define LEAST  2            /* scales for which every value is a normal BF16 number */
#define MOST   252

/* Rows of a, from their pair `from` on, as pairs; the last one of a row is filled up with a zero.
 */
static void round_rows(float *to, const struct mm *a, size_t rows, size_t from, size_t pairs)
{
    size_t n = a->cols - 2 * from < 2 * pairs ? a->cols - 2 * from : 2 * pairs;
    for (size_t r = 0; r < rows; r++, to += pairs) {
        const float *x = a->x + r * a->ldx + 2 * from;
        size_t i = 0;
        for (; i + 2 * V <= n; i += 2 * V)
            vstore(to + i / 2, (vf)_mm512_cvtne2ps_pbh(vload(x + i + V), vload(x + i)));
        for (; i < n; i += 2) {
            uint32_t low = f32_to_bf16(x[i]), high = i + 1 < n ? f32_to_bf16(x[i + 1]) : 0;
            memcpy(to + i / 2, (uint32_t[]){high << 16 | low}, sizeof *to);
        }
    }
}

/* Few rows whole, so that W is read as it lies; of many a block of columns at a time, so that many
 * share a panel. */
static void run_pairs(const struct mm *a, size_t row_bytes, void (*widen)(const struct tile *t),
                      tile_fn direct)
{
    float x[PAIRS] __attribute__((aligned(64)));
    size_t pairs = (a->cols + 1) / 2;
    size_t width = pairs <= BLOCK || a->rows * pairs <= PAIRS ? pairs : BLOCK;
    size_t most = PAIRS / width;
    for (size_t r = 0; r < a->rows; r += most) {
        struct mm p = *a, q = *a;
        p.rows = a->rows - r < most ? a->rows - r : most;
        p.x += r * a->ldx;
        q.rows = p.rows;
        q.y += r * a->ldy;
        q.x = x;
        for (size_t from = 0; from < pairs; from += width) {
            q.ldx = pairs - from < width ? pairs - from : width;
            round_rows(x, &p, p.rows, from, q.ldx);
            mm_columns(&q, from, from + q.ldx, row_bytes, widen, direct);
        }
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

/* What is to be added to the BF16 numbers of each group for its scale, for the first and the second
 * vector of outputs, in both halves of a dword. Returns whether all numbers stay normal. */
static bool load_scales(const struct tile *t, vu add[GROUPS][2])
{
    uint8_t bytes[STRIP][GROUPS];
    struct strip s = {.row_bytes = 0};
    const __m128i least = _mm_set1_epi8(LEAST), most = _mm_set1_epi8((char)MOST);
    __m128i beyond = _mm_setzero_si128();
    size_t first = t->first / 16, n = t->n / 16;
    foreach (i, STRIP) {
        memset(bytes[i], 127, GROUPS);
        memcpy(bytes[i], t->s->scale[i] + first, n);
        s.w[i] = bytes[i];
        __m128i e = load16(bytes[i]);
        beyond =
            _mm_or_si128(beyond, _mm_or_si128(_mm_subs_epu8(least, e), _mm_subs_epu8(e, most)));
    }
    vb v[8], zero = _mm512_setzero_si512();
    load_rows(v, &s, 0);
    ROUNDS(low8, high8, v)
    foreach (j, 8)
        foreach (i, 2) {
            vh e = (vh)(i ? high8(v[j], zero) : low8(v[j], zero));
            vu words = (vu)(vh)((e - 127) << 7);
            add[2 * j + i][0] = (words & 0xffff) | words << 16;
            add[2 * j + i][1] = words >> 16 | (words & 0xffff0000u);
        }
    return _mm_movemask_epi8(_mm_cmpeq_epi8(beyond, _mm_setzero_si128())) == 0xffff;
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

/* BF16 numbers times a power of two; zeros stay. */
INLINE vf scaled(vu pairs, vu add)
{
    __mmask32 some = _mm512_test_epi16_mask((vb)pairs, _mm512_set1_epi16(0x7fff));
    return (vf)_mm512_mask_add_epi16((vb)pairs, some, (vb)pairs, (vb)add);
}

/* A byte of W is a pair: its low half the even column, its high half the odd one. */
INLINE void block_pairs(const struct tile *t, int rows)
{
    vu add[GROUPS][2];
    struct chain chain[2];
    if (!load_scales(t, add)) {
        plain_pairs(t);
        if (rows) tile_run(t, (size_t)rows);
        return;
    }
    foreach (r, rows)
        foreach (i, 2) chain[0].sum[r][i] = chain[1].sum[r][i] = vset1(0.0f);
    for (size_t k = 0; k < t->n; k += 16) {
        vb v[8];
        load_rows(v, t->s, t->first + k);
        ROUNDS(low8, high8, v)
        foreach (j, 8) {
            vb even[2], odd[2];
            decode(even, (vb)((vc)v[j] & 15));
            decode(odd, (vb)((vc)(vb)((vh)v[j] >> 4) & 15));
            foreach (i, 2) {
                vu e = (vu)even[i], o = (vu)odd[i];
                vf w[2] = {scaled((e & 0xffff) | o << 16, add[k / 16][0]),
                           scaled(e >> 16 | (o & 0xffff0000u), add[k / 16][1])};
                put(t, k + 2 * (size_t)j + (size_t)i, w, &chain[i], rows);
            }
        }
    }
    add_chains(t, chain, rows);
}

static void pairs_mxfp4(const struct tile *t)
{
    block_pairs(t, 0);
}

static void direct_pairs(const struct tile *t, size_t rows)
{
    if (rows == 1)
        block_pairs(t, 1);
    else
        block_pairs(t, 2);
}

static void pairs_mm_bf16(const struct mm *a)
{
    run_pairs(a, a->cols * 2, pairs_bf16, NULL);
}

static void pairs_mm_mxfp4(const struct mm *a)
{
    run_pairs(a, a->cols / 2, pairs_mxfp4, direct_pairs);
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
