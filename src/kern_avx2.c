/* AVX2 and FMA: two vectors of eight outputs, six rows in a tile.
 *
 * Widening turns rows of W on their side. Rows go in pairs into the halves of a register, in such
 * an order that three rounds of interleaving leave sixteen outputs of one column in place. */
#include "src/kern.h"

#include "src/kern_tables.h"

#include <immintrin.h>

#define V         8
#define TILE_ROWS 6
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

/* Three rounds that take byte (or word) j of registers 0..7 next to each other. */
#define ROUNDS(low, high, v)                                                                       \
    foreach (round, 3) {                                                                           \
        __m256i t[8];                                                                              \
        foreach (i, 4) {                                                                           \
            t[2 * i] = low(v[i], v[i + 4]);                                                        \
            t[2 * i + 1] = high(v[i], v[i + 4]);                                                   \
        }                                                                                          \
        foreach (i, 8) v[i] = t[i];                                                                \
    }

/* Rows in the order that leaves outputs i and i + 8 in one dword. */
INLINE void load_rows(__m256i v[8], const struct strip *s, size_t at)
{
    foreach (i, 4) {
        v[2 * i] = pair(s, (size_t)i, at);
        v[2 * i + 1] = pair(s, (size_t)i + 8, at);
    }
}

/* BF16 values of one column in the order of load_rows, widened: outputs 0..7 and 8..15. */
INLINE __m256 low_half(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

INLINE __m256 high_half(__m256i words)
{
    return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xffff0000)));
}

static void widen_bf16(const struct strip *s, size_t first, size_t n, float *panel)
{
    size_t k = 0;
    for (; k + 8 <= n; k += 8) {
        __m256i v[8];
        load_rows(v, s, (first + k) * 2);
        ROUNDS(_mm256_unpacklo_epi16, _mm256_unpackhi_epi16, v)
        foreach (j, 8) {
            float *p = panel_at(panel, k + (size_t)j);
            _mm256_store_ps(p, low_half(v[j]));
            _mm256_store_ps(p + V, high_half(v[j]));
        }
    }
    plain_bf16(s, first, k, n, panel);
}

/* Columns c..c+3 of rows 0..3 and 4..7 of v to their places. */
INLINE void turn_f32(float *panel, size_t k, const __m256i v[4])
{
    __m256i a = _mm256_unpacklo_epi32(v[0], v[2]), b = _mm256_unpackhi_epi32(v[0], v[2]);
    __m256i c = _mm256_unpacklo_epi32(v[1], v[3]), d = _mm256_unpackhi_epi32(v[1], v[3]);
    _mm256_store_si256((__m256i *)(void *)panel_at(panel, k), _mm256_unpacklo_epi32(a, c));
    _mm256_store_si256((__m256i *)(void *)panel_at(panel, k + 1), _mm256_unpackhi_epi32(a, c));
    _mm256_store_si256((__m256i *)(void *)panel_at(panel, k + 2), _mm256_unpacklo_epi32(b, d));
    _mm256_store_si256((__m256i *)(void *)panel_at(panel, k + 3), _mm256_unpackhi_epi32(b, d));
}

static void widen_f32(const struct strip *s, size_t first, size_t n, float *panel)
{
    size_t k = 0;
    for (; k + 4 <= n; k += 4) {
        __m256i v[4], u[4];
        foreach (i, 4) v[i] = pair(s, (size_t)i, (first + k) * 4);
        foreach (i, 4) u[i] = pair(s, (size_t)i + 8, (first + k) * 4);
        turn_f32(panel, k, v);
        turn_f32(panel + V, k, u);
    }
    plain_f32(s, first, k, n, panel);
}

/* The exponents of n <= 8 groups as floats: scale[group][output]. Four groups of a row are one
 * dword; each is shifted to where a float has its exponent, 0 becoming 2^-127. */
INLINE void widen_scales(const struct strip *s, size_t first, size_t n, float scale[8][STRIP])
{
    uint64_t e[STRIP] = {0};
    foreach (i, STRIP) memcpy(&e[i], s->scale[i] + first, n == 8 ? 8 : n);
    const __m256i mask = _mm256_set1_epi32(0x7f800000), least = _mm256_set1_epi32(0x00400000);
    foreach (i, 2) {
        __m256 a = _mm256_loadu_ps((const float *)(const void *)(e + 8 * i));
        __m256 b = _mm256_loadu_ps((const float *)(const void *)(e + 8 * i + 4));
        __m256i d[2] = {_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                        _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd))};
        foreach (h, 2) {
            __m256i q = _mm256_permute4x64_epi64(d[h], 0xd8);
            __m256i f[4] = {_mm256_slli_epi32(q, 23), _mm256_slli_epi32(q, 15),
                            _mm256_slli_epi32(q, 7), _mm256_srli_epi32(q, 1)};
            foreach (g, 4)
                _mm256_store_si256((__m256i *)(void *)(scale[4 * h + g] + V * i),
                                   _mm256_max_epi32(_mm256_and_si256(f[g], mask), least));
        }
    }
}

/* 32 codes of one nibble each, in the order of load_rows, as BF16: two columns. */
struct two_columns {
    __m256i a, b;
};

INLINE struct two_columns decode(__m256i codes)
{
    const __m256i high = _mm256_broadcastsi128_si256(
        _mm_set_epi32((int)0xc0c0c0c0, (int)0xbfbfbf80, 0x40404040, 0x3f3f3f00));
    const __m256i low = _mm256_broadcastsi128_si256(
        _mm_set_epi32((int)0xc0804000, (int)0xc0800000, (int)0xc0804000, (int)0xc0800000));
    __m256i h = _mm256_shuffle_epi8(high, codes), l = _mm256_shuffle_epi8(low, codes);
    return (struct two_columns){_mm256_unpacklo_epi8(l, h), _mm256_unpackhi_epi8(l, h)};
}

INLINE void store_scaled(float *p, __m256i words, __m256 s0, __m256 s1)
{
    _mm256_store_ps(p, low_half(words) * s0);
    _mm256_store_ps(p + V, high_half(words) * s1);
}

static void widen_mxfp4(const struct strip *s, size_t first, size_t n, float *panel)
{
    float scale[8][STRIP] __attribute__((aligned(32)));
    widen_scales(s, first / 32, n / 32, scale);
    const __m256i nibble = _mm256_set1_epi8(15);
    for (size_t k = 0; k < n; k += 32) {
        __m256 s0 = _mm256_load_ps(scale[k / 32]), s1 = _mm256_load_ps(scale[k / 32] + V);
        __m256i v[8];
        load_rows(v, s, (first + k) / 2);
        ROUNDS(_mm256_unpacklo_epi8, _mm256_unpackhi_epi8, v)
        float *even = panel_at(panel, k), *odd = panel_at(panel, k + 1);
        foreach (j, 8) {
            struct two_columns e = decode(_mm256_and_si256(v[j], nibble));
            struct two_columns o = decode(_mm256_and_si256(_mm256_srli_epi16(v[j], 4), nibble));
            store_scaled(even + 2 * j * STRIP, e.a, s0, s1);
            store_scaled(even + (2 * j + 1) * STRIP, e.b, s0, s1);
            store_scaled(odd + 2 * j * STRIP, o.a, s0, s1);
            store_scaled(odd + (2 * j + 1) * STRIP, o.b, s0, s1);
        }
    }
}

const struct kern kern_avx2_table = {KERN_FUNCTIONS("avx2")};
