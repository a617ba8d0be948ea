/* AVX-512 by SIMDe (libsimde-dev) over AVX2, its BF16 products and AMX tiles after Intel's
 * description, for running those tables on machines without them. Found before the compiler's
 * header by -I tests/lib/emulate.
 *
 * A tile register is 16 rows of 64 bytes; loads and stores move the configured part and zero the
 * rest; a tile that is not configured, or whose shape does not fit the product, ends the program.
 */
#ifndef NS_IMMINTRIN_H
#define NS_IMMINTRIN_H

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512/setzero.h>
#include <simde/x86/avx512/broadcast.h>
#include <simde/x86/avx512/cast.h>
#include <simde/x86/avx512/fmadd.h>
#include <simde/x86/avx512/insert.h>
#include <simde/x86/avx512/loadu.h>
#include <simde/x86/avx512/set1.h>
#include <simde/x86/avx512/shuffle.h>
#include <simde/x86/avx512/storeu.h>
#include <simde/x86/avx512/unpackhi.h>
#include <simde/x86/avx512/unpacklo.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Not inlined: the compiler would spend half a minute on them. */
#define CALL static __attribute__((noinline))
#undef _mm512_fmadd_ps
#undef _mm512_loadu_ps
#undef _mm512_storeu_ps
#undef _mm512_set1_ps
#define _mm512_fmadd_ps  emulate_fmadd
#define _mm512_loadu_ps  emulate_loadu
#define _mm512_storeu_ps emulate_storeu
#define _mm512_set1_ps   emulate_set1
CALL __m512 emulate_fmadd(__m512 a, __m512 b, __m512 c)
{
    return simde_mm512_fmadd_ps(a, b, c);
}
CALL __m512 emulate_loadu(const float *p)
{
    return simde_mm512_loadu_ps(p);
}
CALL void emulate_storeu(float *p, __m512 v)
{
    simde_mm512_storeu_ps(p, v);
}
CALL __m512 emulate_set1(float x)
{
    return simde_mm512_set1_ps(x);
}

/* Pairs of BF16: rounded to nearest even, the odd product added first, both fused, nothing below
 * the normal range. */
#undef _mm512_cvtne2ps_pbh
#undef _mm512_dpbf16_ps
#undef _mm512_setzero_si512
#undef _mm512_set1_epi16
#undef _mm512_test_epi16_mask
#undef _mm512_mask_add_epi16
#undef _mm512_permutexvar_epi16
#define _mm512_cvtne2ps_pbh      emulate_round
#define _mm512_dpbf16_ps         emulate_pairs
#define _mm512_setzero_si512()   ((__m512i){0})
#define _mm512_set1_epi16(x)     ((__m512i)((emulate_words){0} + (short)(x)))
#define _mm512_test_epi16_mask   emulate_test
#define _mm512_mask_add_epi16    emulate_add
#define _mm512_permutexvar_epi16 emulate_permute
typedef short emulate_words __attribute__((vector_size(64)));

static inline float emulate_normal(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

CALL __m512bh emulate_round(__m512 high, __m512 low)
{
    unsigned short out[32];
    for (int i = 0; i < 32; i++) {
        unsigned u;
        float f = emulate_normal(i < 16 ? low[i] : high[i - 16]);
        memcpy(&u, &f, sizeof u);
        out[i] = (unsigned short)(f != f ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    __m512bh r;
    memcpy(&r, out, sizeof r);
    return r;
}

CALL __m512 emulate_pairs(__m512 sum, __m512bh a, __m512bh b)
{
    unsigned x[16], y[16];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 16; i++)
        for (int odd = 1; odd >= 0; odd--) {
            unsigned u = odd ? x[i] & 0xffff0000u : x[i] << 16,
                     v = odd ? y[i] & 0xffff0000u : y[i] << 16;
            float p, q;
            memcpy(&p, &u, sizeof p);
            memcpy(&q, &v, sizeof q);
            sum[i] = emulate_normal(fmaf(emulate_normal(p), emulate_normal(q), sum[i]));
        }
    return sum;
}

CALL unsigned emulate_test(__m512i a, __m512i b)
{
    emulate_words both = (emulate_words)(a & b);
    unsigned mask = 0;
    for (int i = 0; i < 32; i++) mask |= (unsigned)(both[i] != 0) << i;
    return mask;
}

CALL __m512i emulate_add(__m512i from, unsigned mask, __m512i a, __m512i b)
{
    emulate_words sum = (emulate_words)a + (emulate_words)b, r = (emulate_words)from;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) r[i] = sum[i];
    return (__m512i)r;
}

CALL __m512i emulate_permute(__m512i by, __m512i a)
{
    emulate_words r = {0};
    for (int i = 0; i < 32; i++) r[i] = ((emulate_words)a)[((emulate_words)by)[i] & 31];
    return (__m512i)r;
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig emulate_loadconfig
#define _tile_release    emulate_release
#define _tile_zero       emulate_zero
#define _tile_loadd      emulate_loadd
#define _tile_stored     emulate_stored
#define _tile_dpbf16ps   emulate_dpbf16ps

static struct emulate_tile {
    size_t rows, row_bytes;
    unsigned char data[16][64];
} emulate_tiles[8];

static inline void emulate_loadconfig(const void *config)
{
    const unsigned char *c = config;
    if (c[0] != 1 || c[1] != 0) abort();
    for (int t = 0; t < 8; t++) {
        size_t row_bytes = c[16 + 2 * t] | (size_t)c[17 + 2 * t] << 8, rows = c[48 + t];
        if (rows > 16 || row_bytes > 64 || !rows != !row_bytes) abort();
        emulate_tiles[t] = (struct emulate_tile){.rows = rows, .row_bytes = row_bytes};
    }
    for (int i = 2; i < 64; i++)
        if ((i < 16 || (i >= 32 && i < 48) || i >= 56) && c[i]) abort();
}

static inline void emulate_release(void)
{
    memset(emulate_tiles, 0, sizeof emulate_tiles);
}

static inline void emulate_zero(int t)
{
    if (!emulate_tiles[t].rows) abort();
    memset(emulate_tiles[t].data, 0, sizeof emulate_tiles[t].data);
}

static inline void emulate_loadd(int t, const void *from, size_t stride)
{
    emulate_zero(t);
    for (size_t r = 0; r < emulate_tiles[t].rows; r++)
        memcpy(emulate_tiles[t].data[r], (const char *)from + r * stride,
               emulate_tiles[t].row_bytes);
}

static inline void emulate_stored(int t, void *to, size_t stride)
{
    if (!emulate_tiles[t].rows) abort();
    for (size_t r = 0; r < emulate_tiles[t].rows; r++)
        memcpy((char *)to + r * stride, emulate_tiles[t].data[r], emulate_tiles[t].row_bytes);
}

static inline float emulate_bf16(const unsigned char *row, size_t i)
{
    unsigned u = (unsigned)row[2 * i] << 16 | (unsigned)row[2 * i + 1] << 24;
    float f;
    memcpy(&f, &u, 4);
    return emulate_normal(f);
}

/* c[m][n] += sum over pairs k of a[m][2k] b[k][2n] + a[m][2k+1] b[k][2n+1]: one chain for each of
 * the two, then their sum. */
static inline void emulate_dpbf16ps(int c, int a, int b)
{
    const struct emulate_tile *A = &emulate_tiles[a], *B = &emulate_tiles[b];
    struct emulate_tile *C = &emulate_tiles[c];
    if (!C->rows || C->rows != A->rows || C->row_bytes != B->row_bytes ||
        A->row_bytes != 4 * B->rows)
        abort();
    for (size_t m = 0; m < C->rows; m++)
        for (size_t n = 0; n < C->row_bytes / 4; n++) {
            float chain[2] = {0, 0}, sum;
            for (size_t k = 0; k < B->rows; k++)
                for (size_t i = 0; i < 2; i++)
                    chain[i] = emulate_normal(fmaf(emulate_bf16(A->data[m], 2 * k + i),
                                                   emulate_bf16(B->data[k], 2 * n + i), chain[i]));
            memcpy(&sum, C->data[m] + 4 * n, 4);
            sum = emulate_normal(emulate_normal(sum) + emulate_normal(chain[0] + chain[1]));
            memcpy(C->data[m] + 4 * n, &sum, 4);
        }
}

#endif
