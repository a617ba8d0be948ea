/* The portable table, and the choice of a table.
 *
 * One dot product of 16 interleaved chains serves every product: chain j takes the columns
 * congruent j modulo 16, the chains are added pairwise at the end. */
#include "src/kern.h"

#include <math.h>
#include <string.h>

#define LANES 16
#define CHUNK 256 /* columns widened at a time; a multiple of LANES and of the MXFP4 group */

static float add_lanes(const float *acc)
{
    float t[LANES];
    memcpy(t, acc, sizeof t);
    for (int n = LANES / 2; n; n /= 2)
        for (int j = 0; j < n; j++) t[j] += t[j + n];
    return t[0];
}

static void dot_chunk(float *acc, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) acc[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) acc[j] += a[i] * b[i];
}

static float dot(const float *a, const float *b, size_t n)
{
    float acc[LANES] = {0};
    dot_chunk(acc, a, b, n);
    return add_lanes(acc);
}

static void mm_f32(const struct mm *a)
{
    for (size_t o = a->first; o < a->last; o++)
        for (size_t r = 0; r < a->rows; r++)
            a->y[r * a->ldy + o] =
                dot((const float *)a->w + o * a->cols, a->x + r * a->ldx, a->cols);
}

typedef void (*widen_fn)(const struct mm *a, size_t o, size_t first, size_t n, float *out);

static void widen_bf16(const struct mm *a, size_t o, size_t first, size_t n, float *out)
{
    const uint16_t *w = (const uint16_t *)a->w + o * a->cols + first;
    for (size_t i = 0; i < n; i++) out[i] = bf16_to_f32(w[i]);
}

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

void kern_widen_mxfp4(float *out, const uint8_t *packed, const uint8_t *scale, size_t n)
{
    for (size_t i = 0; i < n; i += 2) {
        float s = e8m0_to_f32(scale[i / 32]);
        out[i] = e2m1[packed[i / 2] & 15] * s;
        out[i + 1] = e2m1[packed[i / 2] >> 4] * s;
    }
}

static void widen_mxfp4(const struct mm *a, size_t o, size_t first, size_t n, float *out)
{
    size_t at = o * a->cols + first;
    kern_widen_mxfp4(out, (const uint8_t *)a->w + at / 2, a->scale + at / 32, n);
}

static void mm_widened(const struct mm *a, widen_fn widen)
{
    float w[CHUNK];
    for (size_t o = a->first; o < a->last; o++)
        for (size_t r = 0; r < a->rows; r++) {
            float acc[LANES] = {0};
            for (size_t i = 0; i < a->cols; i += CHUNK) {
                size_t n = a->cols - i < CHUNK ? a->cols - i : CHUNK;
                widen(a, o, i, n, w);
                dot_chunk(acc, w, a->x + r * a->ldx + i, n);
            }
            a->y[r * a->ldy + o] = add_lanes(acc);
        }
}

static void mm_bf16(const struct mm *a)
{
    mm_widened(a, widen_bf16);
}

static void mm_mxfp4(const struct mm *a)
{
    mm_widened(a, widen_mxfp4);
}

static void axpy(float *y, float s, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += s * x[i];
}

static void rms(float *y, const float *x, const float *w, size_t n, float eps)
{
    float s = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) y[i] = x[i] * s * w[i];
}

static void softmax(float *x, size_t n)
{
    float max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    float s = 1.0f / sum;
    for (size_t i = 0; i < n; i++) x[i] *= s;
}

static float sig(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void situ(float *y, const float *g, const float *u, size_t n, float beta, float lb)
{
    for (size_t i = 0; i < n; i++) {
        float up = lb > 0 ? lb * tanhf(u[i] / lb) : u[i];
        y[i] = beta * tanhf(g[i] / beta) * sig(g[i]) * up;
    }
}

static void silu(float *y, const float *g, const float *u, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = g[i] * sig(g[i]) * (u ? u[i] : 1.0f);
}

static void sigmoid(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = sig(x[i]);
}

static void gelu_tanh(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        x[i] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    }
}

static void gelu_erf(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

static void delta_step(float *S, size_t k, size_t v, const float *decay, const float *key,
                       const float *value, float beta, const float *query, float *out,
                       float *d_scratch)
{
    memset(d_scratch, 0, v * sizeof *d_scratch);
    memset(out, 0, v * sizeof *out);
    for (size_t c = 0; c < k; c++)
        for (size_t j = 0; j < v; j++) d_scratch[j] += key[c] * (S[c * v + j] *= decay[c]);
    for (size_t j = 0; j < v; j++) d_scratch[j] = beta * (value[j] - d_scratch[j]);
    for (size_t c = 0; c < k; c++)
        for (size_t j = 0; j < v; j++) out[j] += query[c] * (S[c * v + j] += key[c] * d_scratch[j]);
}

static const struct kern portable = {
    .name = "portable",
    .mm_f32 = mm_f32,
    .mm_bf16 = mm_bf16,
    .mm_mxfp4 = mm_mxfp4,
    .dot = dot,
    .axpy = axpy,
    .rms = rms,
    .softmax = softmax,
    .situ = situ,
    .silu = silu,
    .sigmoid = sigmoid,
    .gelu_tanh = gelu_tanh,
    .gelu_erf = gelu_erf,
    .delta_step = delta_step,
};

size_t kern_all(const struct kern **out, size_t max)
{
    if (!max) return 0;
    out[0] = &portable;
    return 1;
}

enum status kern_select(const struct kern **out, const char *isa, struct err *e)
{
    if (isa && strcmp(isa, "auto") && strcmp(isa, portable.name))
        return err_set(e, E_USAGE, "this machine has no kernels named \"%s\"", isa);
    *out = &portable;
    return OK;
}
