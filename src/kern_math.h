/* The row functions of one instruction set, written once over a few vector primitives.
 *
 * Included by each table's .c file after it has defined
 *     V  vf               floats in a vector (4, 8 or 16) and its type
 *     vload vstore vset1  any alignment
 *     vfma(a, b, c)       a b + c
 * Everything else is GNU vector arithmetic. Sums run in LANES interleaved chains, added by halves,
 * whatever V is: tables that differ in V alone give the same bits. A row's end goes through the
 * same code with zeros behind it, so an element's result does not depend on where it stands.
 *
 * The elementary functions are ours, so that no libm variant shows in results. Coefficients are
 * minimax fits (Remez). Errors in units of the last place: sigmoid and tanh under 3, x times the
 * tail of the normal distribution under 6. */
#ifndef NS_KERN_MATH_H
#define NS_KERN_MATH_H

#include "src/kern.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES  32
#define NACC   (LANES / V)

/* for j in [0, n): unrolled, for arrays of vectors are to be registers; not where every access is
 * instrumented, which would take the compiler minutes. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* a length may be no constant */
#if __has_feature(address_sanitizer)
#define UNROLL
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define foreach(j, n) UNROLL for (int j = 0; j < (n); j++)

typedef int32_t vi __attribute__((vector_size(4 * V)));

INLINE vf pick(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

INLINE vf vabs(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

/* n < V floats with zeros behind them, and back. */
INLINE vf load_part(const float *x, size_t n)
{
    float t[V] = {0};
    memcpy(t, x, n * sizeof *t);
    return vload(t);
}

INLINE void store_part(float *y, vf v, size_t n)
{
    float t[V];
    vstore(t, v);
    memcpy(y, t, n * sizeof *t);
}

/* ---- elementary functions ---- */

/* e^(x + low), |low| < 0.1. x = n ln 2 + r; 2^n in two factors, so that n from -150 to 128 works
 * and results below the normal range round once. */
INLINE vf exp_sum(vf x, vf low)
{
    const float magic = 0x1.8p23f;
    x = pick(x > 89.0f, vset1(89.0f), x);
    x = pick(x < -104.0f, vset1(-104.0f), x);
    vf t = vfma(x, vset1(1.44269504f), vset1(magic));
    vi n = (vi)t - (vi)vset1(magic);
    t -= magic;
    vf r = vfma(t, vset1(-0.693359375f), x);
    r = vfma(t, vset1(2.12194440e-4f), r) + low;
    vf q = vset1(1.38145802e-3f);
    q = vfma(q, r, vset1(8.36874545e-3f));
    q = vfma(q, r, vset1(4.16683890e-2f));
    q = vfma(q, r, vset1(1.66665211e-1f));
    q = vfma(q, r, vset1(4.99999940e-1f));
    vf p = vfma(r * r, q, r) + 1.0f;
    vi half = n >> 1;
    return p * (vf)((half + 127) << 23) * (vf)((n - half + 127) << 23);
}

INLINE vf vexp(vf x)
{
    return exp_sum(x, vset1(0.0f));
}

INLINE vf vsigmoid(vf x)
{
    vf e = vexp(-vabs(x)), s = 1.0f / (1.0f + e);
    return pick(x < 0.0f, e * s, s);
}

INLINE vf vtanh(vf x)
{
    vf a = vabs(x), s = x * x;
    vf p = vset1(-5.70499804e-3f);
    p = vfma(p, s, vset1(2.06390992e-2f));
    p = vfma(p, s, vset1(-5.37397191e-2f));
    p = vfma(p, s, vset1(1.33314416e-1f));
    p = vfma(p, s, vset1(-3.33332807e-1f));
    vf small = vfma(a * s, p, a), large = 1.0f - 2.0f / (vexp(a + a) + 1.0f);
    vi sign = (vi)x & (int32_t)0x80000000;
    return (vf)((vi)pick(a < 0.625f, small, large) | sign);
}

/* Probability that a standard normal variable exceeds a >= 0: e^(-a^2/2) P(t) / (a + 4),
 * t = (a - 4) / (a + 4). a^2 is split, for its rounding error would be multiplied by a^2. */
INLINE vf normal_tail(vf a)
{
    a = pick(a > 15.0f, vset1(15.0f), a);
    vf top = (vf)((vi)a & (int32_t)0xfffff000);
    vf e = exp_sum(top * top * -0.5f, (a - top) * (a + top) * -0.5f);
    vf r = 1.0f / (a + 4.0f), t = (a - 4.0f) * r;
    vf p = vset1(-1.34195594e-4f);
    p = vfma(p, t, vset1(1.74660425e-4f));
    p = vfma(p, t, vset1(1.56840787e-3f));
    p = vfma(p, t, vset1(-3.51021206e-3f));
    p = vfma(p, t, vset1(-7.52400421e-3f));
    p = vfma(p, t, vset1(6.04034886e-2f));
    p = vfma(p, t, vset1(-1.86523661e-1f));
    p = vfma(p, t, vset1(3.87136906e-1f));
    p = vfma(p, t, vset1(-6.07896566e-1f));
    p = vfma(p, t, vset1(7.55285144e-1f));
    return e * p * r;
}

/* ---- reductions ---- */

INLINE float add_lanes(vf acc[NACC])
{
    float t[V];
    for (int n = NACC / 2; n; n /= 2)
        foreach (j, n) acc[j] += acc[j + n];
    vstore(t, acc[0]);
    for (int n = V / 2; n; n /= 2)
        foreach (j, n) t[j] += t[j + n];
    return t[0];
}

INLINE void dot_lanes(vf acc[NACC], const float *a, const float *b)
{
    foreach (j, NACC) acc[j] = vfma(vload(a + j * V), vload(b + j * V), acc[j]);
}

static float dot(const float *a, const float *b, size_t n)
{
    vf acc[NACC];
    foreach (j, NACC) acc[j] = vset1(0.0f);
    for (; n >= LANES; n -= LANES, a += LANES, b += LANES) dot_lanes(acc, a, b);
    if (n) {
        float at[LANES] = {0}, bt[LANES] = {0};
        memcpy(at, a, n * sizeof *a);
        memcpy(bt, b, n * sizeof *b);
        dot_lanes(acc, at, bt);
    }
    return add_lanes(acc);
}

static float row_max(const float *x, size_t n)
{
    float top = x[0], t[V];
    if (n >= V) {
        vf m = vload(x);
        for (; n >= V; n -= V, x += V) m = pick(vload(x) > m, vload(x), m);
        vstore(t, m);
        foreach (j, V) top = t[j] > top ? t[j] : top;
    }
    for (size_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

static float scale_max(float *x, size_t n, float s)
{
    float top = -__builtin_inff(), t[V];
    size_t i = 0;
    vf m = vset1(top);
    for (; i + V <= n; i += V) {
        vf v = vload(x + i) * s;
        vstore(x + i, v);
        m = pick(v > m, v, m);
    }
    vstore(t, m);
    foreach (j, V) top = t[j] > top ? t[j] : top;
    for (; i < n; i++) {
        x[i] *= s;
        top = x[i] > top ? x[i] : top;
    }
    return top;
}

static float row_sum(const float *x, size_t n)
{
    vf acc[NACC];
    float last[LANES] = {0};
    foreach (j, NACC) acc[j] = vset1(0.0f);
    for (; n >= LANES; n -= LANES, x += LANES)
        foreach (j, NACC) acc[j] += vload(x + j * V);
    memcpy(last, x, n * sizeof *x);
    foreach (j, NACC) acc[j] += vload(last + j * V);
    return add_lanes(acc);
}

/* ---- element by element ---- */

struct par {
    float a, b;
};
typedef vf (*map_fn)(vf x, vf u, struct par p);

/* y[i] = f(x[i], u[i]); y may be x or u, u may be NULL (reads as 1). */
INLINE void map(float *y, const float *x, const float *u, size_t n, struct par p, map_fn f)
{
    size_t i = 0;
    vf one = vset1(1.0f);
    for (; i + V <= n; i += V) vstore(y + i, f(vload(x + i), u ? vload(u + i) : one, p));
    if (i == n) return;
    n -= i;
    store_part(y + i, f(load_part(x + i, n), u ? load_part(u + i, n) : one, p), n);
}

INLINE vf f_scale(vf x, vf u, struct par p)
{
    return x * p.a * u;
}

INLINE vf f_exp(vf x, vf u, struct par p)
{
    (void)u;
    return vexp(x - p.a);
}

INLINE vf f_axpy(vf x, vf y, struct par p)
{
    return vfma(vset1(p.a), x, y);
}

INLINE vf f_situ(vf g, vf u, struct par p)
{
    return vtanh(g / p.a) * p.a * vsigmoid(g) * u;
}

INLINE vf f_situ_capped(vf g, vf u, struct par p)
{
    return f_situ(g, vtanh(u / p.b) * p.b, p);
}

INLINE vf f_silu(vf g, vf u, struct par p)
{
    (void)p;
    return g * vsigmoid(g) * u;
}

INLINE vf f_sigmoid(vf x, vf u, struct par p)
{
    (void)u, (void)p;
    return vsigmoid(x);
}

/* (1 + tanh z) / 2 = sig(2 z) */
INLINE vf f_gelu_tanh(vf x, vf u, struct par p)
{
    (void)u, (void)p;
    return x * vsigmoid(x * vfma(x * x, vset1(0.0713548162726f), vset1(1.59576912161f)));
}

INLINE vf f_gelu_erf(vf x, vf u, struct par p)
{
    (void)u, (void)p;
    vf q = normal_tail(vabs(x));
    return x * pick(x < 0.0f, q, 1.0f - q);
}

INLINE vf f_round_bf16(vf x, vf u, struct par p)
{
    (void)u, (void)p;
    vi bits = (vi)x, nan = (bits & 0x7fffffff) > 0x7f800000;
    vi near = bits + 0x7fff + (bits >> 16 & 1);
    vi kept = (nan & (bits | 0x400000)) | (~nan & near);
    return (vf)(kept & (int32_t)0xffff0000);
}

static const struct par none;

static void axpy(float *y, float s, const float *x, size_t n)
{
    map(y, x, y, n, (struct par){s, 0}, f_axpy);
}

static void rms(float *y, const float *x, const float *w, size_t n, float eps)
{
    float s = 1.0f / __builtin_sqrtf(dot(x, x, n) / (float)n + eps);
    map(y, x, w, n, (struct par){s, 0}, f_scale);
}

static void softmax(float *x, size_t n)
{
    if (n == 0) return;
    map(x, x, NULL, n, (struct par){row_max(x, n), 0}, f_exp);
    map(x, x, NULL, n, (struct par){1.0f / row_sum(x, n), 0}, f_scale);
}

static void situ(float *y, const float *g, const float *u, size_t n, float beta, float lb)
{
    if (lb > 0)
        map(y, g, u, n, (struct par){beta, lb}, f_situ_capped);
    else
        map(y, g, u, n, (struct par){beta, 0}, f_situ);
}

static void silu(float *y, const float *g, const float *u, size_t n)
{
    map(y, g, u, n, none, f_silu);
}

static void exponential(float *x, size_t n)
{
    map(x, x, NULL, n, none, f_exp);
}

static void sigmoid(float *x, size_t n)
{
    map(x, x, NULL, n, none, f_sigmoid);
}

static void round_row(float *x, size_t n)
{
    map(x, x, NULL, n, none, f_round_bf16);
}

static void gelu_tanh(float *x, size_t n)
{
    map(x, x, NULL, n, none, f_gelu_tanh);
}

static void gelu_erf(float *x, size_t n)
{
    map(x, x, NULL, n, none, f_gelu_erf);
}

/* ---- sums over rows, columns side by side ---- */

#define COLUMNS 4 /* vectors: enough chains, and k rows of them stay in cache for a second pass */

INLINE vf load_n(const float *x, size_t n)
{
    return n == V ? vload(x) : load_part(x, n);
}

INLINE void store_n(float *y, vf v, size_t n)
{
    if (n == V)
        vstore(y, v);
    else
        store_part(y, v, n);
}

/* `vectors` vectors of `width` <= V columns, both constant but for the last. */
INLINE void mix_columns(float *y, const float *p, size_t n, const float *x, size_t ldx, int vectors,
                        size_t width)
{
    vf sum[COLUMNS];
    foreach (i, vectors) sum[i] = vset1(0.0f);
    for (size_t j = 0; j < n; j++, x += ldx)
        foreach (i, vectors) sum[i] = vfma(vset1(p[j]), load_n(x + i * V, width), sum[i]);
    foreach (i, vectors) store_n(y + i * V, sum[i], width);
}

static void mix(float *y, const float *p, size_t n, const float *x, size_t ldx, size_t width)
{
    size_t i = 0;
    for (; i + COLUMNS * V <= width; i += COLUMNS * V)
        mix_columns(y + i, p, n, x + i, ldx, COLUMNS, V);
    for (; i + V <= width; i += V) mix_columns(y + i, p, n, x + i, ldx, 1, V);
    if (i < width) mix_columns(y + i, p, n, x + i, ldx, 1, width - i);
}

/* ---- the gated delta rule ---- */

struct delta {
    float *S;
    size_t k, v;
    const float *decay, *key, *value, *query;
    float beta;
    float *out, *d;
};

/* `vectors` vectors of `width` <= V columns from column j on, both constant but for the last. */
INLINE void delta_columns(const struct delta *t, size_t j, int vectors, size_t width)
{
    vf d[COLUMNS], o[COLUMNS];
    float *S = t->S + j;
    foreach (i, vectors) d[i] = o[i] = vset1(0.0f);
    for (size_t c = 0; c < t->k; c++) {
        vf decay = vset1(t->decay[c]), key = vset1(t->key[c]);
        foreach (i, vectors) d[i] = vfma(key, load_n(S + c * t->v + i * V, width) * decay, d[i]);
    }
    foreach (i, vectors) d[i] = t->beta * (load_n(t->value + j + i * V, width) - d[i]);
    for (size_t c = 0; c < t->k; c++) {
        vf decay = vset1(t->decay[c]), key = vset1(t->key[c]), query = vset1(t->query[c]);
        foreach (i, vectors) {
            float *at = S + c * t->v + i * V;
            vf s = vfma(key, d[i], load_n(at, width) * decay);
            store_n(at, s, width);
            o[i] = vfma(query, s, o[i]);
        }
    }
    foreach (i, vectors) store_n(t->d + j + i * V, d[i], width);
    foreach (i, vectors) store_n(t->out + j + i * V, o[i], width);
}

static void delta_step(float *S, size_t k, size_t v, const float *decay, const float *key,
                       const float *value, float beta, const float *query, float *out,
                       float *d_scratch)
{
    struct delta t = {S, k, v, decay, key, value, query, beta, out, d_scratch};
    size_t j = 0;
    for (; j + COLUMNS * V <= v; j += COLUMNS * V) delta_columns(&t, j, COLUMNS, V);
    for (; j + V <= v; j += V) delta_columns(&t, j, 1, V);
    if (j < v) delta_columns(&t, j, 1, v - j);
}

/* ---- measuring ---- */

/* Twelve chains of multiply-adds: enough for two units of latency five. */
static inline double spin(size_t rounds)
{
    vf a[12], b = vset1(0.999f), c = vset1(0.001f);
    volatile float sink;
    float t[V];
    foreach (i, 12) a[i] = vset1((float)i);
    for (size_t r = 0; r < rounds; r++)
        foreach (i, 12) a[i] = vfma(a[i], b, c);
    foreach (i, 11) a[11] += a[i];
    vstore(t, a[11]);
    sink = t[0];
    (void)sink;
    return 2.0 * 12 * V * (double)rounds;
}

#endif
