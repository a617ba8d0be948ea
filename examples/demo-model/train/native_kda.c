/* Kimi Delta Attention (KDA), forward and backward: from the projections to the gated normed
 * outputs. See native_text.h.
 *
 * A row of p is q | k | v | gate | f | beta; z, of the decays, comes from f. The recurrence of
 * kda.py token by token: at 32 x 32 the state stays in the nearest cache. The backward pass keeps
 * the state before every SEGMENT tokens and makes those within again. */
#include "examples/demo-model/train/native_text.h"

#if defined(__AVX512BF16__)

#define HEAD    32
#define TAPS    4
#define SEGMENT 16

typedef float row32[HEAD];
typedef row32 matrix32[HEAD];

/* Of one head of one conversation, an entry a token */
typedef struct {
    row32 *mixed[3], *qkv[3]; /* after the convolution; after SiLU and, of q and k, the length */
    row32 *decay;             /* factors, exp(g) */
    row32 *error, *out;       /* v - S'k; the output before its norm */
    row32 *dqkv[3];
    float *beta, *scale[2]; /* scale: inverse lengths of q and k */
} kda_head;

/* The same of one token */
typedef struct {
    const float *q, *k, *v, *decay;
    float beta, *error, *out, *dq, *dk, *dv;
} kda_token;

typedef struct {
    const bf16 *p, *z;
    long ld, heads, beta_at;
    const float *taps, *dt_bias, *a_log, *o_norm;
    float bound, eps;
} kda_layer;

static kda_head kda_room(long tokens)
{
    kda_head s;
    row32 *at = room(ROOM_KDA, (tokens + 1) * (12 * sizeof(row32) + 3 * sizeof(float)));
    for (int part = 0; part < 3; part++) {
        s.mixed[part] = at + (3 * part) * tokens;
        s.qkv[part] = at + (3 * part + 1) * tokens;
        s.dqkv[part] = at + (3 * part + 2) * tokens;
    }
    s.decay = at + 9 * tokens;
    s.error = at + 10 * tokens;
    s.out = at + 11 * tokens;
    s.beta = (float *)(at + 12 * tokens);
    s.scale[0] = s.beta + tokens;
    s.scale[1] = s.scale[0] + tokens;
    return s;
}

INLINE kda_token token_of(const kda_head *s, long t)
{
    return (kda_token){.q = s->qkv[0][t],
                       .k = s->qkv[1][t],
                       .v = s->qkv[2][t],
                       .decay = s->decay[t],
                       .beta = s->beta[t],
                       .error = s->error[t],
                       .out = s->out[t],
                       .dq = s->dqkv[0][t],
                       .dk = s->dqkv[1][t],
                       .dv = s->dqkv[2][t]};
}

static bf16 bf16_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

static float float_of(bf16 b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE vec low_and_high(vec a, vec b)
{
    return _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
}

INLINE vec quarters(vec a, vec b)
{
    return _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
}

/* sums of 16 vectors, in order */
INLINE vec totals(const vec *x)
{
    vec y[8], z[4];
    for (int k = 0; k < 8; k++) y[k] = low_and_high(x[2 * k], x[2 * k + 1]);
    for (int k = 0; k < 4; k++) {
        __m512d p = _mm512_castps_pd(y[2 * k]), q = _mm512_castps_pd(y[2 * k + 1]);
        z[k] =
            _mm512_castpd_ps(_mm512_unpacklo_pd(p, q)) + _mm512_castpd_ps(_mm512_unpackhi_pd(p, q));
    }
    return quarters(quarters(z[0], z[1]), quarters(z[2], z[3]));
}

/* taps [LANES channels][TAPS] */
static void load_taps(const float *taps, vec to[TAPS])
{
    for (int i = 0; i < TAPS; i++) {
        float column[LANES];
        for (int j = 0; j < LANES; j++) column[j] = taps[j * TAPS + i];
        to[i] = load(column);
    }
}

/* mixed of head h, and qkv after SiLU; p begins with the conversation's first token */
static void kda_convolve(const kda_layer *l, const bf16 *p, long tokens, long h, kda_head *s)
{
    for (int part = 0; part < 3; part++)
        for (int half = 0; half < HEAD; half += LANES) {
            long channel = (part * l->heads + h) * HEAD + half;
            vec w[TAPS], a = zero(), b = zero(), c = zero();
            load_taps(l->taps + channel * TAPS, w);
            for (long t = 0; t < tokens; t++) {
                vec x = load_bf16(p + t * l->ld + channel);
                vec y = w[0] * a + w[1] * b + w[2] * c + w[3] * x;
                store(s->mixed[part][t] + half, y);
                store(s->qkv[part][t] + half, y * sigmoid(y));
                a = b, b = c, c = x;
            }
        }
}

/* mixed, qkv, decay, beta of head h; p and z begin with the conversation's first token */
static void kda_prepare(const kda_layer *l, const bf16 *p, const bf16 *z, long tokens, long h,
                        kda_head *s)
{
    float a = expf(l->a_log[h]);
    kda_convolve(l, p, tokens, h, s);
    for (long t = 0; t < tokens; t++) {
        for (int part = 0; part < 2; part++) {
            float *x = s->qkv[part][t];
            vec x0 = load(x), x1 = load(x + LANES);
            float scale = s->scale[part][t] = 1 / sqrtf(sum_of(x0 * x0 + x1 * x1) + 1e-6f);
            if (part == 0) scale /= sqrtf(HEAD);
            store(x, x0 * splat(scale));
            store(x + LANES, x1 * splat(scale));
        }
        for (int half = 0; half < HEAD; half += LANES) {
            long channel = h * HEAD + half;
            vec x = load_bf16(z + t * l->heads * HEAD + channel) + load(l->dt_bias + channel);
            store(s->decay[t] + half, exp_of(splat(l->bound) * sigmoid(splat(a) * x)));
        }
        s->beta[t] = 1 / (1 + expf(-float_of(p[t * l->ld + l->beta_at + h])));
    }
}

/* One token: state in place; error = v - S'k, out = Sq. */
INLINE void kda_step(matrix32 state, kda_token n)
{
    vec seen[4] = {zero(), zero(), zero(), zero()}, o[4] = {zero(), zero(), zero(), zero()};
    for (int i = 0; i < HEAD; i += 2)
        for (int odd = 0; odd < 2; odd++) {
            float *row = state[i + odd];
            vec g = splat(n.decay[i + odd]), k = splat(n.k[i + odd]);
            vec x0 = load(row) * g, x1 = load(row + LANES) * g;
            store(row, x0);
            store(row + LANES, x1);
            seen[2 * odd] = madd(x0, k, seen[2 * odd]);
            seen[2 * odd + 1] = madd(x1, k, seen[2 * odd + 1]);
        }
    vec e0 = load(n.v) - (seen[0] + seen[2]), e1 = load(n.v + LANES) - (seen[1] + seen[3]);
    store(n.error, e0);
    store(n.error + LANES, e1);
    e0 = e0 * splat(n.beta);
    e1 = e1 * splat(n.beta);
    for (int i = 0; i < HEAD; i += 2)
        for (int odd = 0; odd < 2; odd++) {
            float *row = state[i + odd];
            vec k = splat(n.k[i + odd]), q = splat(n.q[i + odd]);
            vec x0 = madd(k, e0, load(row)), x1 = madd(k, e1, load(row + LANES));
            store(row, x0);
            store(row + LANES, x1);
            o[2 * odd] = madd(x0, q, o[2 * odd]);
            o[2 * odd + 1] = madd(x1, q, o[2 * odd + 1]);
        }
    store(n.out, o[0] + o[2]);
    store(n.out + LANES, o[1] + o[3]);
}

/* All tokens; keeps (if not NULL): the state before every SEGMENT tokens. */
static void kda_recur(kda_head *s, long tokens, matrix32 *keeps)
{
    matrix32 state __attribute__((aligned(64)));
    memset(state, 0, sizeof state);
    for (long t = 0; t < tokens; t++) {
        if (keeps && t % SEGMENT == 0) memcpy(keeps[t / SEGMENT], state, sizeof state);
        kda_step(state, token_of(s, t));
    }
}

static kda_layer kda_of(const bf16 *p, long ld, const bf16 *z, long heads, const float *taps,
                        const float *dt_bias, const float *a_log, const float *o_norm, float bound,
                        float eps)
{
    long beta_at = (4 * heads + 1) * HEAD;
    return (kda_layer){p, z, ld, heads, beta_at, taps, dt_bias, a_log, o_norm, bound, eps};
}

/* p [rows][ld], z and y [rows][heads][HEAD], taps [q | k | v][heads][HEAD][TAPS], dt_bias
 * [heads][HEAD], a_log [heads], o_norm [HEAD] */
void kda(const bf16 *p, long ld, const bf16 *z, const int64_t *first, long conversations,
         long heads, const float *taps, const float *dt_bias, const float *a_log,
         const float *o_norm, float bound, float eps, bf16 *y)
{
    kda_layer l = kda_of(p, ld, z, heads, taps, dt_bias, a_log, o_norm, bound, eps);
    long width = heads * HEAD;
    for (long c = 0; c < conversations; c++) {
        long tokens = first[c + 1] - first[c];
        kda_head s = kda_room(tokens);
        for (long h = 0; h < heads; h++) {
            const bf16 *mine = p + first[c] * ld, *gate = mine + 3 * width + h * HEAD;
            bf16 *to = y + first[c] * width + h * HEAD;
            kda_prepare(&l, mine, z + first[c] * width, tokens, h, &s);
            kda_recur(&s, tokens, NULL);
            for (long t = 0; t < tokens; t++) {
                float r = inverse_rms(s.out[t], HEAD, eps);
                for (int half = 0; half < HEAD; half += LANES) {
                    vec open = sigmoid(load_bf16(gate + t * ld + half));
                    vec normed = load(s.out[t] + half) * splat(r) * load(o_norm + half);
                    store_bf16(to + t * width + half, normed * open);
                }
            }
        }
    }
}

/* dk and the gradient of the error from dstate and what dout adds to it; gives dbeta */
INLINE float kda_error_back(const matrix32 dstate, kda_token n, const float *dout, vec derror[2])
{
    vec g0 = load(dout), g1 = load(dout + LANES), e0 = load(n.error), e1 = load(n.error + LANES);
    vec delta0 = e0 * splat(n.beta), delta1 = e1 * splat(n.beta), part[LANES];
    vec d[4] = {zero(), zero(), zero(), zero()};
    for (int half = 0; half < HEAD; half += LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            const float *row = dstate[half + i];
            vec q = splat(n.q[half + i]), k = splat(n.k[half + i]);
            vec x0 = madd(q, g0, load(row)), x1 = madd(q, g1, load(row + LANES));
            part[i] = madd(x0, delta0, x1 * delta1);
            d[i % 2] = madd(x0, k, d[i % 2]);
            d[2 + i % 2] = madd(x1, k, d[2 + i % 2]);
        }
        store(n.dk + half, totals(part));
    }
    derror[0] = d[0] + d[1], derror[1] = d[2] + d[3];
    float dbeta = sum_of(derror[0] * e0 + derror[1] * e1);
    derror[0] = derror[0] * splat(n.beta);
    derror[1] = derror[1] * splat(n.beta);
    return dbeta;
}

/* Gradient of the recurrence at one token. dstate: of the state after it, becomes that of the state
 * before it. Gives dbeta. */
INLINE float kda_step_back(matrix32 dstate, const matrix32 before, const matrix32 after,
                           kda_token n, const float *dout, float *ddecay)
{
    vec g0 = load(dout), g1 = load(dout + LANES), part[LANES], derror[2];
    for (int half = 0; half < HEAD; half += LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            part[i] = madd(load(after[half + i]), g0, load(after[half + i] + LANES) * g1);
        store(n.dq + half, totals(part));
    }
    float dbeta = kda_error_back(dstate, n, dout, derror);
    vec d0 = derror[0], d1 = derror[1];
    store(n.dv, d0);
    store(n.dv + LANES, d1);
    for (int half = 0; half < HEAD; half += LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            float *row = dstate[half + i];
            const float *old = before[half + i];
            vec k = splat(n.k[half + i]), q = splat(n.q[half + i]), g = splat(n.decay[half + i]);
            vec x0 = _mm512_fnmadd_ps(k, d0, madd(q, g0, load(row)));
            vec x1 = _mm512_fnmadd_ps(k, d1, madd(q, g1, load(row + LANES)));
            part[i] = madd(x0, load(old), x1 * load(old + LANES));
            store(row, x0 * g);
            store(row + LANES, x1 * g);
        }
        store(ddecay + half, totals(part));
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            part[i] = madd(load(before[half + i]), d0, load(before[half + i] + LANES) * d1);
        store(n.dk + half, load(n.dk + half) - load(n.decay + half) * totals(part));
    }
    return dbeta;
}

/* Where gradients go: dp and dz begin with the conversation's first token, the others are sums. */
typedef struct {
    bf16 *dp, *dz;
    float *taps, *dt_bias, *a_log, *o_norm;
} kda_gradient;

/* From the gradient of a token's gated normed output to that of the output itself. */
static void kda_output_back(const kda_layer *l, const bf16 *gate, const bf16 *dy, const float *out,
                            bf16 *dgate, float *dnorm, float *dout)
{
    float r = inverse_rms(out, HEAD, l->eps), d[HEAD];
    for (int half = 0; half < HEAD; half += LANES) {
        vec open = sigmoid(load_bf16(gate + half)), upstream = load_bf16(dy + half);
        vec normed = load(out + half) * splat(r) * load(l->o_norm + half);
        store_bf16(dgate + half, upstream * normed * open * (splat(1) - open));
        store(d + half, upstream * open);
    }
    norm_row_back(out, r, l->o_norm, d, HEAD, dout, dnorm);
}

/* g = bound sigmoid(exp(A_log) x), x = z + dt_bias: gradients of z, of the bias and of A_log. */
static void kda_decay_back(const kda_layer *l, const bf16 *z, long h, const float *decay,
                           const float *ddecay, bf16 *dz, kda_gradient *d)
{
    float a = expf(l->a_log[h]);
    vec on_a = zero();
    for (int half = 0; half < HEAD; half += LANES) {
        vec x = load_bf16(z + half) + load(l->dt_bias + h * HEAD + half), s = sigmoid(splat(a) * x);
        vec dx =
            load(ddecay + half) * load(decay + half) * splat(l->bound * a) * s * (splat(1) - s);
        store_bf16(dz + half, dx);
        add_to(d->dt_bias + h * HEAD + half, dx);
        on_a = madd(dx, x, on_a);
    }
    d->a_log[h] += sum_of(on_a);
}

/* Through the lengths of q and k: dqkv in place. */
static void kda_lengths_back(long tokens, kda_head *s)
{
    for (int part = 0; part < 2; part++) {
        vec shrink = splat(part == 0 ? 1 / sqrtf(HEAD) : 1);
        vec grow = splat(part == 0 ? sqrtf(HEAD) : 1);
        for (long t = 0; t < tokens; t++) {
            float *g = s->dqkv[part][t], *x = s->qkv[part][t], scale = s->scale[part][t];
            vec x0 = load(x) * grow, x1 = load(x + LANES) * grow; /* of length 1 */
            vec g0 = load(g) * shrink, g1 = load(g + LANES) * shrink;
            vec along = splat(sum_of(x0 * g0 + x1 * g1));
            store(g, splat(scale) * (g0 - x0 * along));
            store(g + LANES, splat(scale) * (g1 - x1 * along));
        }
    }
}

/* Through SiLU and the convolution to dp and the taps. x[t] enters token t + i by tap 3 - i;
 * later[i]: gradient there. */
static void kda_convolution_back(const kda_layer *l, const bf16 *p, long tokens, long h,
                                 const kda_head *s, kda_gradient *d)
{
    for (int part = 0; part < 3; part++)
        for (int half = 0; half < HEAD; half += LANES) {
            long channel = (part * l->heads + h) * HEAD + half;
            vec w[TAPS], on_w[TAPS] = {zero(), zero(), zero(), zero()};
            vec later[TAPS] = {zero(), zero(), zero(), zero()};
            load_taps(l->taps + channel * TAPS, w);
            for (long t = tokens - 1; t >= 0; t--) {
                vec y = load(s->mixed[part][t] + half), open = sigmoid(y), dx = zero();
                vec x = load_bf16(p + t * l->ld + channel);
                later[3] = later[2], later[2] = later[1], later[1] = later[0];
                later[0] = load(s->dqkv[part][t] + half) * open;
                later[0] = later[0] * (splat(1) + y * (splat(1) - open));
                for (int i = 0; i < TAPS; i++) {
                    dx = madd(w[TAPS - 1 - i], later[i], dx);
                    on_w[TAPS - 1 - i] = madd(x, later[i], on_w[TAPS - 1 - i]);
                }
                store_bf16(d->dp + t * l->ld + channel, dx);
            }
            for (int i = 0; i < TAPS; i++) {
                float column[LANES];
                store(column, on_w[i]);
                for (int j = 0; j < LANES; j++) d->taps[(channel + j) * TAPS + i] += column[j];
            }
        }
}

/* after = what the token makes of the state before it, whose error is known */
INLINE void kda_again(const matrix32 before, kda_token n, matrix32 after)
{
    for (int i = 0; i < HEAD; i++)
        for (int half = 0; half < HEAD; half += LANES) {
            vec kept = splat(n.decay[i]) * load(before[i] + half);
            store(after[i] + half, madd(splat(n.k[i] * n.beta), load(n.error + half), kept));
        }
}

/* The recurrence of head h, from the last token to the first. p, z, dy begin with the
 * conversation's first token; keeps: as kda_recur left it; within [SEGMENT + 1]: spare. */
static void kda_recur_back(const kda_layer *l, const bf16 *p, const bf16 *z, const bf16 *dy,
                           long tokens, long h, const kda_head *s, const matrix32 *keeps,
                           matrix32 *within, kda_gradient *d)
{
    long width = l->heads * HEAD;
    matrix32 dstate __attribute__((aligned(64)));
    memset(dstate, 0, sizeof dstate);
    for (long segment = (tokens + SEGMENT - 1) / SEGMENT - 1; segment >= 0; segment--) {
        long begin = segment * SEGMENT, end = begin + SEGMENT < tokens ? begin + SEGMENT : tokens;
        memcpy(within[0], keeps[segment], sizeof(matrix32));
        for (long t = begin; t < end; t++)
            kda_again(within[t - begin], token_of(s, t), within[t - begin + 1]);
        for (long t = end - 1; t >= begin; t--) {
            long gate = t * l->ld + 3 * width + h * HEAD, at = t * width + h * HEAD, i = t - begin;
            float dout[HEAD], ddecay[HEAD], beta = s->beta[t];
            kda_output_back(l, p + gate, dy + at, s->out[t], d->dp + gate, d->o_norm, dout);
            float dbeta =
                kda_step_back(dstate, within[i], within[i + 1], token_of(s, t), dout, ddecay);
            kda_decay_back(l, z + at, h, s->decay[t], ddecay, d->dz + at, d);
            d->dp[t * l->ld + l->beta_at + h] = bf16_of(dbeta * beta * (1 - beta));
        }
    }
}

/* dy as y of kda(). Writes dp but for the part of f, and dz; adds to the other gradients. */
void kda_back(const bf16 *p, long ld, const bf16 *z, const int64_t *first, long conversations,
              long heads, const float *taps, const float *dt_bias, const float *a_log,
              const float *o_norm, float bound, float eps, const bf16 *dy, bf16 *dp, bf16 *dz,
              float *dtaps, float *ddt_bias, float *da_log, float *do_norm)
{
    kda_layer l = kda_of(p, ld, z, heads, taps, dt_bias, a_log, o_norm, bound, eps);
    for (long c = 0; c < conversations; c++) {
        long tokens = first[c + 1] - first[c], segments = (tokens + SEGMENT - 1) / SEGMENT;
        long at = first[c] * heads * HEAD;
        const bf16 *mine = p + first[c] * ld;
        kda_gradient d = {dp + first[c] * ld, dz + at, dtaps, ddt_bias, da_log, do_norm};
        kda_head s = kda_room(tokens);
        matrix32 *keeps = room(ROOM_KDA_STATES, (segments + SEGMENT + 1) * sizeof(matrix32));
        for (long t = 0; t < tokens; t++)
            memset(d.dp + t * ld + l.beta_at, 0, (ld - l.beta_at) * sizeof(bf16));
        for (long h = 0; h < heads; h++) {
            kda_prepare(&l, mine, z + at, tokens, h, &s);
            kda_recur(&s, tokens, keeps);
            kda_recur_back(&l, mine, z + at, dy + at, tokens, h, &s, keeps, keeps + segments, &d);
            kda_lengths_back(tokens, &s);
            kda_convolution_back(&l, mine, tokens, h, &s, &d);
        }
    }
}

#endif
