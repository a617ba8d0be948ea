/* Mixture of experts, forward and backward: the router's choices, the experts' products, MXFP4, the
 * weighted sum. See native_text.h.
 *
 * A choice is number row * top + place. Rows of the experts are ordered by expert: slot [choices]
 * is a choice's place in that order, source [choices] the choice at a place, begin [experts + 1] an
 * expert's first place. */
#include "examples/demo-model/train/native_text.h"

#if defined(__AVX512BF16__)

#define EXPERTS 1024

/* Where the largest of so many values is, the first if there are several */
static long best_of(const float *values, long count)
{
    vec most = load(values);
    for (long e = LANES; e < count; e += LANES) most = larger(most, load(values + e));
    most = splat(largest_of(most));
    for (long e = 0; e < count; e += LANES) {
        __mmask16 same = _mm512_cmp_ps_mask(load(values + e), most, _CMP_EQ_OQ);
        if (same) return e + __builtin_ctz(same);
    }
    return 0; /* all are NaN */
}

/* Sigmoid scores, the `top` best of score + bias, their weights of sum 1. logits [rows][experts],
 * bias [experts]; chosen, weight, score [rows][top]; count [experts]: how often each was chosen. */
void route(const float *logits, const float *bias, long rows, long experts, long top,
           int64_t *chosen, float *weight, float *score, int64_t *count, int32_t *slot,
           int32_t *source, int32_t *begin)
{
    float s[EXPERTS], biased[EXPERTS];
    memset(count, 0, experts * sizeof *count);
    for (long i = 0; i < rows; i++) {
        float sum = 1e-20f;
        for (long e = 0; e < experts; e += LANES) {
            vec x = sigmoid(load(logits + i * experts + e));
            store(s + e, x);
            store(biased + e, x + load(bias + e));
        }
        for (long j = i * top; j < (i + 1) * top; j++) {
            long best = best_of(biased, experts);
            biased[best] = -1e30f;
            chosen[j] = best;
            sum += score[j] = s[best];
            slot[j] = count[best]++;
        }
        for (long j = i * top; j < (i + 1) * top; j++) weight[j] = score[j] / sum;
    }
    begin[0] = 0;
    for (long e = 0; e < experts; e++) begin[e + 1] = begin[e] + count[e];
    for (long j = 0; j < rows * top; j++) {
        slot[j] += begin[chosen[j]];
        source[slot[j]] = j;
    }
}

/* Through the weights and scores to the router: adds to drouter [experts][width]; dx [rows][width]
 * = BF16 of dx_rest and the router's part. */
void route_back(const float *dweight, const float *weight, const float *score,
                const int64_t *chosen, long rows, long top, const bf16 *x, long width,
                const float *router, const float *dx_rest, bf16 *dx, float *drouter)
{
    float row[WIDEST];
    for (long i = 0; i < rows; i++) {
        float sum = 1e-20f, mean = 0;
        for (long j = i * top; j < (i + 1) * top; j++) {
            sum += score[j];
            mean += dweight[j] * weight[j];
        }
        memcpy(row, dx_rest + i * width, width * sizeof(float));
        for (long j = i * top; j < (i + 1) * top; j++) {
            float dlogit = (dweight[j] - mean) / sum * score[j] * (1 - score[j]);
            const float *w = router + chosen[j] * width;
            float *dw = drouter + chosen[j] * width;
            for (long n = 0; n < width; n += LANES) {
                add_to(row + n, splat(dlogit) * load(w + n));
                add_to(dw + n, splat(dlogit) * load_bf16(x + i * width + n));
            }
        }
        row_to_bf16(dx + i * width, row, width);
    }
}

/* MXFP4 as microscaling.fake has it: groups of 32 with a power of two each, magnitudes 0 .5 1 1.5 2
 * 3 4 6. */
#define GROUP 32

/* sizes in steps, none above 7 */
INLINE vec nearest_fp4(vec size)
{
    vec by_half = _mm512_roundscale_ps(size, 0x10), by_one = _mm512_roundscale_ps(size, 0);
    vec by_two = _mm512_roundscale_ps(size * splat(0.5f), 0) * splat(2);
    vec x = _mm512_mask_mov_ps(by_two, _mm512_cmp_ps_mask(size, splat(4), _CMP_LT_OQ), by_one);
    x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(size, splat(2), _CMP_LT_OQ), by_half);
    return smaller(x, splat(6));
}

/* out [n] = what MXFP4 makes of w [n]; n: a multiple of GROUP */
void mxfp4(const float *w, float *out, long n)
{
    for (const float *end = w + n; w < end; w += GROUP, out += GROUP) {
        vec sign = splat(-0.0f), half[2] = {load(w), load(w + LANES)}, size[2];
        for (int i = 0; i < 2; i++) size[i] = _mm512_andnot_ps(sign, half[i]);
        float largest = largest_of(larger(size[0], size[1]));
        uint32_t bits;
        memcpy(&bits, &largest, sizeof bits);
        /* largest: in (3.5, 7] steps */
        int exponent = (int)(bits >> 23) - 129 + ((bits & 0x7fffff) > 0x600000);
        exponent = exponent < -100 ? -100 : exponent;
        exponent = exponent > 100 ? 100 : exponent;
        for (int i = 0; i < 2; i++) {
            vec x = nearest_fp4(_mm512_scalef_ps(size[i], splat(-exponent)));
            x = _mm512_scalef_ps(x, splat(exponent));
            store(out + i * LANES, _mm512_or_ps(x, _mm512_and_ps(sign, half[i])));
        }
    }
}

typedef struct {
    const bf16 *x; /* [rows][ldx], of which latent */
    long ldx, top, latent, width;
    const int32_t *source, *begin;
    long rounded; /* to MXFP4 */
} expert_layer;

/* An expert's matrix in BF16, as training sees it; spare [latent * width] */
static void expert_matrix(const expert_layer *l, const float *w, float *spare, bf16 *to)
{
    long n = l->latent * l->width;
    if (l->rounded) mxfp4(w, spare, n);
    row_to_bf16(to, l->rounded ? spare : w, n);
}

static void take_rows(const expert_layer *l, long from, long to, bf16 *taken)
{
    for (long s = from; s < to; s++)
        memcpy(taken + (s - from) * l->latent, l->x + l->source[s] / l->top * l->ldx,
               l->latent * sizeof(bf16));
}

static long busiest(const int32_t *begin, long experts)
{
    long most = 0;
    for (long e = 0; e < experts; e++)
        most = begin[e + 1] - begin[e] > most ? begin[e + 1] - begin[e] : most;
    return most;
}

/* w1, w3 [experts][width][latent], w2 [experts][latent][width]; gate_up [choices][2 width] and y
 * [choices][latent], ordered by expert */
void experts(const bf16 *x, long ldx, const int32_t *source, const int32_t *begin, long experts,
             long top, long latent, long width, const float *w1, const float *w3, const float *w2,
             long rounded, float beta, float linear, bf16 *gate_up, bf16 *y)
{
    expert_layer l = {x, ldx, top, latent, width, source, begin, rounded};
    long n = latent * width, most = busiest(begin, experts);
    size_t values = 3 * n + most * (latent + width);
    float *spare = room(ROOM_MOE, n * sizeof(float) + values * sizeof(bf16));
    bf16 *both = (bf16 *)(spare + n), *back = both + 2 * n, *taken = back + n;
    bf16 *act = taken + most * latent;
    size_t size = packed_size(latent, 2 * width) + packed_size(width, latent);
    bf16_pair *panels = room(ROOM_RIGHT, size);
    for (long e = 0; e < experts; e++) {
        long from = begin[e], rows = begin[e + 1] - from;
        if (!rows) continue;
        bf16 *my_gate_up = gate_up + from * 2 * width;
        target to_gate_up = {my_gate_up, 2 * width, TO_BF16};
        target to_y = {y + from * latent, latent, TO_BF16};
        take_rows(&l, from, from + rows, taken);
        expert_matrix(&l, w1 + e * n, spare, both);
        expert_matrix(&l, w3 + e * n, spare, both + n);
        packed b = pack_transposed(panels, both, latent, 2 * width, latent);
        product(taken, latent, rows, latent, b, 2 * width, to_gate_up);
        situ(my_gate_up, 2 * width, rows, width, beta, linear, act, width);
        expert_matrix(&l, w2 + e * n, spare, back);
        b = pack_transposed(panels, back, width, latent, width);
        product(act, width, rows, width, b, latent, to_y);
    }
}

/* dmixed F32 [rows][latent]: gradient of the weighted sum. Writes dx [choices][latent], ordered by
 * expert, and the matrices' gradients. */
void experts_back(const bf16 *x, long ldx, const int32_t *source, const int32_t *begin,
                  long experts, long top, long latent, long width, const float *w1, const float *w3,
                  const float *w2, long rounded, float beta, float linear, const bf16 *gate_up,
                  const float *weight, const float *dmixed, bf16 *dx, float *dw1, float *dw3,
                  float *dw2)
{
    expert_layer l = {x, ldx, top, latent, width, source, begin, rounded};
    long n = latent * width, most = busiest(begin, experts), two = 2 * width;
    size_t values = 3 * n + most * (2 * latent + 4 * width);
    float *spare = room(ROOM_MOE, n * sizeof(float) + values * sizeof(bf16));
    bf16 *both = (bf16 *)(spare + n), *back = both + 2 * n, *taken = back + n;
    bf16 *dy = taken + most * latent, *act = dy + most * latent, *dact = act + most * width;
    bf16 *dgate_up = dact + most * width;
    /* not ROOM_RIGHT, which product_of_columns uses */
    size_t size = packed_size(two, latent) + packed_size(latent, width);
    bf16_pair *panels = room(ROOM_WEIGHTS, size);
    for (long e = 0; e < experts; e++) {
        long from = begin[e], rows = begin[e + 1] - from;
        const bf16 *my_gate_up = gate_up + from * two;
        target to_dact = {dact, width, TO_BF16}, to_dx = {dx + from * latent, latent, TO_BF16};
        target to_dw1 = {dw1 + e * n, latent, TO_F32}, to_dw3 = {dw3 + e * n, latent, TO_F32};
        target to_dw2 = {dw2 + e * n, width, TO_F32};
        take_rows(&l, from, from + rows, taken);
        for (long s = 0; s < rows; s++) {
            long choice = source[from + s];
            const float *d = dmixed + choice / top * latent;
            for (long j = 0; j < latent; j += LANES)
                store_bf16(dy + s * latent + j, splat(weight[choice]) * load(d + j));
        }
        expert_matrix(&l, w2 + e * n, spare, back);
        packed b = pack(panels, back, width, width, latent);
        product(dy, latent, rows, latent, b, width, to_dact);
        situ_back(my_gate_up, two, rows, width, beta, linear, dact, width, dgate_up, two, act,
                  width);
        product_of_columns(dy, latent, latent, act, width, width, rows, to_dw2);
        product_of_columns(dgate_up, two, width, taken, latent, latent, rows, to_dw1);
        product_of_columns(dgate_up + width, two, width, taken, latent, latent, rows, to_dw3);
        expert_matrix(&l, w1 + e * n, spare, both);
        expert_matrix(&l, w3 + e * n, spare, both + n);
        b = pack(panels, both, latent, latent, two);
        product(dgate_up, two, rows, two, b, latent, to_dx);
    }
}

/* out = the sum of a row's choices' y times their weights */
INLINE void combined_row(const bf16 *y, const int32_t *slot, const float *weight, long top,
                         long latent, float *out)
{
    for (long n = 0; n < latent; n += LANES) {
        vec s = zero();
        for (long j = 0; j < top; j++)
            s = madd(splat(weight[j]), load_bf16(y + slot[j] * latent + n), s);
        store(out + n, s);
    }
}

/* out = norm(sum of the choices' y times their weights) */
void combine(const bf16 *y, const int32_t *slot, const float *weight, long rows, long top,
             long latent, const float *w, float eps, bf16 *out, long ldo)
{
    float sum[WIDEST];
    for (long i = 0; i < rows; i++) {
        combined_row(y, slot + i * top, weight + i * top, top, latent, sum);
        norm_row(sum, w, eps, latent, out + i * ldo);
    }
}

/* Writes dmixed [rows][latent] and dweight, adds to dw. */
void combine_back(const bf16 *y, const int32_t *slot, const float *weight, long rows, long top,
                  long latent, const float *w, float eps, const bf16 *dout, long ldo, float *dmixed,
                  float *dweight, float *dw)
{
    float sum[WIDEST], d[WIDEST];
    for (long i = 0; i < rows; i++) {
        combined_row(y, slot + i * top, weight + i * top, top, latent, sum);
        row_to_float(d, dout + i * ldo, latent);
        norm_row_back(sum, inverse_rms(sum, latent, eps), w, d, latent, dmixed + i * latent, dw);
        for (long j = i * top; j < (i + 1) * top; j++) {
            vec s = zero();
            for (long n = 0; n < latent; n += LANES)
                s = madd(load(dmixed + i * latent + n), load_bf16(y + slot[j] * latent + n), s);
            dweight[j] = sum_of(s);
        }
    }
}

/* out [rows] = sums of the choices' dx */
void gather_back(const bf16 *dx, const int32_t *slot, long rows, long top, long latent, bf16 *out,
                 long ldo)
{
    for (long i = 0; i < rows; i++)
        for (long n = 0; n < latent; n += LANES) {
            vec s = zero();
            for (long j = i * top; j < (i + 1) * top; j++)
                s += load_bf16(dx + slot[j] * latent + n);
            store_bf16(out + i * ldo + n, s);
        }
}

#endif
