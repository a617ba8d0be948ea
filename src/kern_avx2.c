/* AVX2 and FMA: strips of two vectors of eight outputs, six rows in a tile.
 *
 * Widening turns rows of W on their side. Rows go in pairs into the halves of a register, in such
 * an order that rounds of interleaving leave the outputs of one column in place. */
#include "src/kern.h"

#include "src/kern_tables.h"

#include <immintrin.h>

#define V           8
#define TILE_ROWS   6
#define DIRECT_ROWS 2
typedef __m256 vf;
#define vload  _mm256_loadu_ps
#define vstore _mm256_storeu_ps
#define vset1  _mm256_set1_ps
#define vfma   _mm256_fmadd_ps

#include "src/kern_mm.h"

/* Bytes [at, at + 16) of rows i and i + 4. */
INLINE __m256i pair(const struct strip *s, size_t i, size_t at)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(s->w[i] + at));
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(s->w[i + 4] + at));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Bytes [at, at + 16) of all rows, in the order that leaves outputs i and i + 8 in one dword. */
INLINE void load_rows(__m256i v[8], const struct strip *s, size_t at)
{
    fetch_next(s, at);
    foreach (i, 4) {
        v[2 * i] = pair(s, (size_t)i, at);
        v[2 * i + 1] = pair(s, (size_t)i + 8, at);
    }
}

/* Three rounds that bring byte (or word) j of registers 0..7 next to each other. */
#define ROUNDS(low, high, v)                                                                       \
    foreach (round, 3) {                                                                           \
        __m256i turned[8];                                                                         \
        foreach (i, 4) {                                                                           \
            turned[2 * i] = low(v[i], v[i + 4]);                                                   \
            turned[2 * i + 1] = high(v[i], v[i + 4]);                                              \
        }                                                                                          \
        foreach (i, 8) v[i] = turned[i];                                                           \
    }

/* BF16 values of one column, as load_rows orders them, widened: outputs 0..7 and 8..15. */
INLINE __m256 low_half(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

INLINE __m256 high_half(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)));
}

static void widen_bf16(const struct tile *t)
{
    size_t k = 0;
    for (; k + 8 <= t->n; k += 8) {
        __m256i v[8];
        load_rows(v, t->s, (t->first + k) * 2);
        ROUNDS(_mm256_unpacklo_epi16, _mm256_unpackhi_epi16, v)
        foreach (j, 8) {
            float *p = panel_at(t, k + (size_t)j);
            vstore(p, low_half(v[j]));
            vstore(p + V, high_half(v[j]));
        }
    }
    plain_bf16(t, k);
}

/* Columns k..k+3 of outputs h..h+7. */
INLINE void turn_f32(const struct tile *t, size_t k, size_t h)
{
    __m256i v[4], u[4];
    foreach (i, 4) v[i] = pair(t->s, h + (size_t)i, (t->first + k) * 4);
    foreach (i, 2) {
        u[2 * i] = _mm256_unpacklo_epi32(v[i], v[i + 2]);
        u[2 * i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 2]);
    }
    foreach (i, 2) {
        size_t column = k + 2 * (size_t)i;
        vstore(panel_at(t, column) + h, _mm256_castsi256_ps(_mm256_unpacklo_epi32(u[i], u[i + 2])));
        vstore(panel_at(t, column + 1) + h,
               _mm256_castsi256_ps(_mm256_unpackhi_epi32(u[i], u[i + 2])));
    }
}

/* Eight rows at a time up to the end of their cache lines: sixteen could fall on one set. */
static void widen_f32(const struct tile *t)
{
    size_t whole = t->n / 4 * 4;
    for (size_t line = 0; line < whole; line += 16) {
        size_t end = line + 16 < whole ? line + 16 : whole;
        for (size_t h = 0; h < STRIP; h += V)
            for (size_t k = line; k < end; k += 4) turn_f32(t, k, h);
        for (size_t k = line; k < end; k += 4) fetch_next(t->s, (t->first + k) * 4);
    }
    plain_f32(t, whole);
}

/* The scales of n <= 8 groups as floats: scale[group][output]. The exponents of four groups of a
 * row are one dword; each is shifted to where a float has its own, 0 becoming 2^-127. */
INLINE void widen_scales(const struct strip *s, size_t first, size_t n, float scale[8][STRIP])
{
    const __m256i mask = _mm256_set1_epi32(0x7f800000), least = _mm256_set1_epi32(0x00400000);
    uint64_t e[STRIP] = {0};
    if (n == 8)
        foreach (i, STRIP) memcpy(&e[i], s->scale[i] + first, 8);
    else
        foreach (i, STRIP) memcpy(&e[i], s->scale[i] + first, n);
    for (size_t i = 0; i < STRIP; i += V) {
        __m256 a = vload((const float *)(const void *)(e + i));
        __m256 b = vload((const float *)(const void *)(e + i + 4));
        __m256i d[2] = {_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                        _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd))};
        foreach (h, 2) {
            __m256i q = _mm256_permute4x64_epi64(d[h], 0xd8);
            __m256i f[4] = {_mm256_slli_epi32(q, 23), _mm256_slli_epi32(q, 15),
                            _mm256_slli_epi32(q, 7), _mm256_srli_epi32(q, 1)};
            foreach (g, 4) {
                f[g] = _mm256_max_epi32(_mm256_and_si256(f[g], mask), least);
                vstore(scale[4 * h + g] + i, _mm256_castsi256_ps(f[g]));
            }
        }
    }
}

/* Codes, one a byte, of two columns as load_rows orders them; out comes their BF16. */
INLINE void decode(__m256i words[2], __m256i codes)
{
    const __m256i high = _mm256_broadcastsi128_si256(
        _mm_set_epi32((int)0xc0c0c0c0, (int)0xbfbfbf80, 0x40404040, 0x3f3f3f00));
    const __m256i low = _mm256_broadcastsi128_si256(
        _mm_set_epi32((int)0xc0804000, (int)0xc0800000, (int)0xc0804000, (int)0xc0800000));
    __m256i h = _mm256_shuffle_epi8(high, codes), l = _mm256_shuffle_epi8(low, codes);
    words[0] = _mm256_unpacklo_epi8(l, h);
    words[1] = _mm256_unpackhi_epi8(l, h);
}

struct chain {
    __m256 sum[DIRECT_ROWS][2];
};

/* One column: into the panel (rows = 0), or times x. */
INLINE void put(const struct tile *t, size_t column, const __m256 w[2], struct chain *c, int rows)
{
    if (rows == 0) {
        vstore(panel_at(t, column), w[0]);
        vstore(panel_at(t, column) + V, w[1]);
    }
    foreach (r, rows) {
        __m256 x = vset1(t->x[(size_t)r * t->ldx + column]);
        c->sum[r][0] = vfma(x, w[0], c->sum[r][0]);
        c->sum[r][1] = vfma(x, w[1], c->sum[r][1]);
    }
}

INLINE void block_mxfp4(const struct tile *t, int rows)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    float scale[8][STRIP];
    struct chain chain[2];
    foreach (r, rows)
        foreach (i, 2) chain[0].sum[r][i] = chain[1].sum[r][i] = vset1(0.0f);
    widen_scales(t->s, t->first / 32, t->n / 32, scale);
    for (size_t k = 0; k < t->n; k += 32) {
        __m256 s0 = vload(scale[k / 32]), s1 = vload(scale[k / 32] + V);
        __m256i v[8];
        load_rows(v, t->s, (t->first + k) / 2);
        ROUNDS(_mm256_unpacklo_epi8, _mm256_unpackhi_epi8, v)
        foreach (j, 8)
            foreach (odd, 2) {
                __m256i words[2], codes = odd ? _mm256_srli_epi16(v[j], 4) : v[j];
                decode(words, _mm256_and_si256(codes, nibble));
                foreach (i, 2) {
                    __m256 w[2] = {low_half(words[i]) * s0, high_half(words[i]) * s1};
                    put(t, k + 4 * (size_t)j + 2 * (size_t)i + (size_t)odd, w, &chain[odd], rows);
                }
            }
    }
    foreach (r, rows)
        foreach (i, 2) {
            float *y = t->y + (size_t)r * t->ldy + i * V;
            vstore(y, vload(y) + chain[0].sum[r][i] + chain[1].sum[r][i]);
        }
}

static void widen_mxfp4(const struct tile *t)
{
    block_mxfp4(t, 0);
}

static void direct_mxfp4(const struct tile *t, size_t rows)
{
    if (rows == 1)
        block_mxfp4(t, 1);
    else
        block_mxfp4(t, 2);
}

const struct kern kern_avx2_table = {KERN_FUNCTIONS("avx2")};
