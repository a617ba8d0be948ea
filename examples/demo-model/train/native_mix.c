/* What stands between the products of the text layers: norms, mixtures of residual sums, SiTU. See
 * native_text.h. */
#include "examples/demo-model/train/native_text.h"

#if defined(__AVX512BF16__)

/* y [rows][width] = x w / rms(x) */
void norm(const bf16 *x, long ldx, long rows, long width, const float *w, float eps, bf16 *y,
          long ldy)
{
    float row[WIDEST];
    for (long i = 0; i < rows; i++) {
        row_to_float(row, x + i * ldx, width);
        norm_row(row, w, eps, width, y + i * ldy);
    }
}

/* Writes dx, adds to dw. */
void norm_back(const bf16 *x, long ldx, long rows, long width, const float *w, float eps,
               const bf16 *dy, long lddy, bf16 *dx, long lddx, float *dw)
{
    float row[WIDEST], d[WIDEST], out[WIDEST];
    for (long i = 0; i < rows; i++) {
        row_to_float(row, x + i * ldx, width);
        row_to_float(d, dy + i * lddy, width);
        norm_row_back(row, inverse_rms(row, width, eps), w, d, width, out, dw);
        row_to_bf16(dx + i * lddx, out, width);
    }
}

/* -- y = norm(sum_c share_c v_c), share = softmax_c(v_c . query / rms(v_c)); one candidate: only
 * the norm -- */

#define CANDIDATES 16

typedef struct {
    const float *const *v; /* [candidates][rows][width] */
    long n;
    const float *query;
    float query_eps;
    long width;
} mixture;

/* out = sum_c share_c v_c; at: where the row begins in each v_c */
INLINE void blend(const mixture *m, const float *share, long at, float *out)
{
    for (long j = 0; j < m->width; j += LANES) {
        vec s = zero();
        for (long c = 0; c < m->n; c++) s = madd(splat(share[c]), load(m->v[c] + at + j), s);
        store(out + j, s);
    }
}

/* share [n] of the row at `at` */
static void shares_of(const mixture *m, long at, float *share)
{
    float most = -1e30f, sum = 0;
    if (m->n == 1) {
        share[0] = 1;
        return;
    }
    for (long c = 0; c < m->n; c++) {
        vec squares = zero(), dot = zero();
        for (long j = 0; j < m->width; j += LANES) {
            vec x = load(m->v[c] + at + j);
            squares = madd(x, x, squares);
            dot = madd(x, load(m->query + j), dot);
        }
        share[c] = sum_of(dot) / sqrtf(sum_of(squares) / m->width + m->query_eps);
        most = share[c] > most ? share[c] : most;
    }
    for (long c = 0; c < m->n; c++) sum += share[c] = expf(share[c] - most);
    for (long c = 0; c < m->n; c++) share[c] /= sum;
}

/* y [rows][width] and shares [rows][n]; w: weights of the norm */
void mix(const float *const *v, long n, const float *query, float query_eps, const float *w,
         float eps, long rows, long width, float *shares, bf16 *y)
{
    mixture m = {v, n, query, query_eps, width};
    float mixed[WIDEST];
    for (long i = 0; i < rows; i++) {
        shares_of(&m, i * width, shares + i * n);
        blend(&m, shares + i * n, i * width, mixed);
        norm_row(mixed, w, eps, width, y + i * width);
    }
}

/* From the gradient of one row's mixture to those of its candidates and the query. */
static void blend_back(const mixture *m, const float *share, long at, const float *dmixed,
                       float *const *dv, float *dquery)
{
    float scale[CANDIDATES], dot[CANDIDATES], towards[CANDIDATES], mean = 0;
    for (long c = 0; c < m->n; c++) {
        vec squares = zero(), dots = zero(), t = zero();
        for (long j = 0; j < m->width; j += LANES) {
            vec x = load(m->v[c] + at + j);
            squares = madd(x, x, squares);
            dots = madd(x, load(m->query + j), dots);
            t = madd(x, load(dmixed + j), t);
        }
        scale[c] = 1 / sqrtf(sum_of(squares) / m->width + m->query_eps);
        dot[c] = sum_of(dots);
        towards[c] = sum_of(t);
        mean += share[c] * towards[c];
    }
    for (long c = 0; c < m->n; c++) {
        float score = share[c] * (towards[c] - mean), on_query = score * scale[c];
        float on_v = -score * dot[c] * scale[c] * scale[c] * scale[c] / m->width;
        for (long j = 0; j < m->width; j += LANES) {
            vec x = load(m->v[c] + at + j);
            vec d = madd(splat(share[c]), load(dmixed + j), splat(on_v) * x);
            store(dv[c] + at + j, madd(splat(on_query), load(m->query + j), d));
            add_to(dquery + j, splat(on_query) * x);
        }
    }
}

/* Writes dv, adds to dquery and dw. */
void mix_back(const float *const *v, long n, const float *query, float query_eps, const float *w,
              float eps, long rows, long width, const float *shares, const bf16 *dy,
              float *const *dv, float *dquery, float *dw)
{
    mixture m = {v, n, query, query_eps, width};
    float mixed[WIDEST], d[WIDEST], dmixed[WIDEST];
    for (long i = 0; i < rows; i++) {
        blend(&m, shares + i * n, i * width, mixed);
        row_to_float(d, dy + i * width, width);
        norm_row_back(mixed, inverse_rms(mixed, width, eps), w, d, width, dmixed, dw);
        if (n == 1)
            memcpy(dv[0] + i * width, dmixed, width * sizeof(float));
        else
            blend_back(&m, shares + i * n, i * width, dmixed, dv, dquery);
    }
}

/* -- SiTU: beta tanh(gate / beta) sigmoid(gate) linear tanh(up / linear) -- */

typedef struct {
    vec bent, open, up; /* tanh(gate / beta), sigmoid(gate), tanh(up / linear) */
} situ_parts;

INLINE vec tanh_of(vec x)
{
    return splat(1) - splat(2) * reciprocal(splat(1) + exp_of(smaller(x + x, splat(80))));
}

INLINE situ_parts situ_of(const bf16 *gate, const bf16 *up, float beta, float linear)
{
    vec g = load_bf16(gate), u = load_bf16(up);
    return (situ_parts){tanh_of(g * splat(1 / beta)), sigmoid(g), tanh_of(u * splat(1 / linear))};
}

/* gate_up [rows][gate | up], both of `width`; out [rows][width] */
void situ(const bf16 *gate_up, long ld, long rows, long width, float beta, float linear, bf16 *out,
          long ldo)
{
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < width; j += LANES) {
            const bf16 *gate = gate_up + i * ld + j;
            situ_parts s = situ_of(gate, gate + width, beta, linear);
            store_bf16(out + i * ldo + j, splat(beta * linear) * s.bent * s.open * s.up);
        }
}

/* dgate_up as gate_up, from dout [rows][width]; again: the outputs, if not NULL */
void situ_back(const bf16 *gate_up, long ld, long rows, long width, float beta, float linear,
               const bf16 *dout, long ldo, bf16 *dgate_up, long ldd, bf16 *again, long lda)
{
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < width; j += LANES) {
            const bf16 *gate = gate_up + i * ld + j;
            bf16 *dgate = dgate_up + i * ldd + j;
            situ_parts s = situ_of(gate, gate + width, beta, linear);
            vec d = load_bf16(dout + i * ldo + j), left = s.bent * s.open;
            vec dbent = (splat(1) - s.bent * s.bent) * s.open * splat(1 / beta);
            vec dleft = dbent + left * (splat(1) - s.open);
            store_bf16(dgate, d * splat(beta * linear) * s.up * dleft);
            store_bf16(dgate + width, d * splat(beta) * left * (splat(1) - s.up * s.up));
            if (again) store_bf16(again + i * lda + j, splat(beta * linear) * left * s.up);
        }
}

#endif
