/* The table of kernels: the inner loops, one implementation per instruction set, chosen at run
 * time.
 *
 * Every function works on each row by itself with one fixed order of additions, whatever the number
 * of rows, the split of outputs or the thread: a row's result depends on that row alone. Only the
 * instruction set may change low bits: avx2, avx512 and neon agree to the bit, portable rounds
 * products before adding, avx512bf16 and amx have their own order. No function of libm is called.
 * All activations are F32; weights are F32, BF16 or MXFP4. */
#ifndef NS_KERN_H
#define NS_KERN_H

#include "src/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One matrix product, y = W x for many rows: y[r * ldy + o] = sum_i W[o][i] * x[r * ldx + i], for r
 * in [0, rows) and o in [first, last). x and y need the alignment of floats, w and scale none; x
 * and y do not overlap. */
struct mm {
    float *y;
    size_t ldy;
    const void *w;        /* [outputs][cols] row-major: float, uint16_t (BF16) or packed nibbles
                             [outputs][cols / 2] */
    const uint8_t *scale; /* MXFP4: [outputs][cols / 32] E8M0 exponents, 255 refused at load;
                             else NULL */
    size_t cols;          /* MXFP4: a multiple of 32 */
    const float *x;
    size_t ldx;
    size_t rows;
    size_t first, last;
};

struct kern {
    const char *name; /* "portable", "avx2", ... */
    /* NULL, or this table rounds activations to BF16 where weights are BF16 or MXFP4, and that one
     * is the same without. */
    const struct kern *unrounded;
    void (*mm_f32)(const struct mm *a);
    void (*mm_bf16)(const struct mm *a);
    void (*mm_mxfp4)(const struct mm *a);

    /* sum_i a[i] * b[i] */
    float (*dot)(const float *a, const float *b, size_t n);
    /* y[i] += s * x[i] */
    void (*axpy)(float *y, float s, const float *x, size_t n);
    /* y[i] = sum_j p[j] * x[j * ldx + i], i in [0, width): the bits of axpy called for each j in
     * turn */
    void (*mix)(float *y, const float *p, size_t n, const float *x, size_t ldx, size_t width);
    /* y[i] = x[i] * rsqrt(mean(x^2) + eps) * w[i]; y may be x (kimi-k3 2.2) */
    void (*rms)(float *y, const float *x, const float *w, size_t n, float eps);
    /* x <- softmax(x), with the maximum subtracted */
    void (*softmax)(float *x, size_t n);
    /* y[i] = beta tanh(g/beta) sig(g) * lb tanh(u/lb) ; lb <= 0: plain u (SiTU). y may be g. */
    void (*situ)(float *y, const float *g, const float *u, size_t n, float beta, float lb);
    /* y[i] = g sig(g) * u (SiLU unit); u may be NULL: y = g sig(g). y may be g. */
    void (*silu)(float *y, const float *g, const float *u, size_t n);
    /* x[i] = e^x[i] */
    void (*exp)(float *x, size_t n);
    /* x[i] = sig(x[i]) */
    void (*sigmoid)(float *x, size_t n);
    /* in place: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) and 0.5 x (1 + erf(x / sqrt 2)) */
    void (*gelu_tanh)(float *x, size_t n);
    void (*gelu_erf)(float *x, size_t n);
    /* x[i] *= s; returns the largest, -INFINITY of none */
    float (*scale_max)(float *x, size_t n, float s);
    /* x[i] to the nearest BF16 number, to even where two are as near; NaN stays NaN */
    void (*round_bf16)(float *x, size_t n);
    /* One step of the gated delta rule for one head, state S [k][v] row-major (kimi-k3 2.4):
     *   S row c *= decay[c];  u = S^T key;  d = beta (value - u);  S += key d^T;  out = S^T query
     * d_scratch: [v] floats, holds d afterwards. */
    void (*delta_step)(float *S, size_t k, size_t v, const float *decay, const float *key,
                       const float *value, float beta, const float *query, float *out,
                       float *d_scratch);

    /* For measuring: multiply-adds on registers alone. Returns the floating point operations done.
     */
    double (*spin)(size_t rounds);
};

/* The best table this machine can run, or the one named by isa ("portable", "avx2", "avx512",
 * "avx512bf16", "amx", "neon"); E_USAGE when the name is unknown or the machine cannot run it. isa
 * NULL or "auto": the best of those that do not round; where activations are BF16 anyway (bf16),
 * the best of all but "amx", which has been run on an emulation only. */
enum status kern_select(const struct kern **out, const char *isa, bool bf16, struct err *e);
/* All tables this machine can run, portable first, the better the later; returns the count (<=
 * max). For tests and bench. */
size_t kern_all(const struct kern **out, size_t max);

/* BF16 <-> F32: exact widening, round to nearest even (NaN stays NaN). */
static inline float bf16_to_f32(uint16_t b)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)b << 16};
    return v.f;
}

static inline uint16_t f32_to_bf16(float f)
{
    union {
        float f;
        uint32_t u;
    } v = {f};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(v.u >> 16 | 0x40);
    return (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1)) >> 16);
}

/* 2^(e-127); e = 255 is NaN. */
static inline float e8m0_to_f32(uint8_t e)
{
    union {
        uint32_t u;
        float f;
    } v = {e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : (uint32_t)e << 23};
    return v.f;
}

/* n columns (a multiple of 32) of one MXFP4 row, exactly (kimi-k3 1.4). */
void kern_widen_mxfp4(float *out, const uint8_t *packed, const uint8_t *scale, size_t n);

#endif
