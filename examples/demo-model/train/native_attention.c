/* Attention of the vision tower within each picture, forward and backward. See native_tower.py.
 *
 * Rows as in native_tower.c. Two neighbouring BF16 are one operand, a uint32_t: the processor's
 * BF16 product multiplies pairs and adds both to an F32 lane. Without that instruction the same is
 * written with the operators of C. */
#include "examples/demo-model/train/native.h"

#define HEAD         24 /* channels of a head */
#define PAIRS        (HEAD / 2)
#define KEYS_AT_ONCE 8 /* in scores(): enough sums to hide the latency of a product */

typedef float f32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));

INLINE u32x16 load_pairs(const uint32_t *from)
{
    u32x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE u32x8 load_8_pairs(const uint32_t *from)
{
    u32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* bf16 of all of `first`, then of `second` */
INLINE u16x32 join(vec first, vec second)
{
#if defined(__AVX512BF16__)
    return (u16x32)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
    u16x16 halves[2] = {rounded(first), rounded(second)};
    u16x32 both;
    memcpy(&both, halves, sizeof both);
    return both;
#endif
}

INLINE u32x16 interleave(u16x32 joined)
{
    return (u32x16)__builtin_shufflevector(joined, joined, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                           6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                           29, 14, 30, 15, 31);
}

INLINE u32x16 pair(vec first, vec second)
{
    return interleave(join(first, second));
}

INLINE vec first_of(u32x16 pairs)
{
    return (vec)(pairs << 16);
}

INLINE vec second_of(u32x16 pairs)
{
    return (vec)(pairs & 0xffff0000u);
}

INLINE u32x16 everywhere(const uint32_t *b)
{
#if defined(__AVX512F__)
    return (u32x16)_mm512_set1_epi32((int)*b);
#else
    return *b - (u32x16){0};
#endif
}

/* sum + the products of a lane's two values with the two of b; dot_8 takes the first lanes of b */
INLINE vec dot(vec sum, u32x16 a, u32x16 b)
{
#if defined(__AVX512BF16__)
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return sum + first_of(a) * first_of(b) + second_of(a) * second_of(b);
#endif
}

INLINE f32x8 dot_8(f32x8 sum, u32x8 a, u32x16 b)
{
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
    __m256i half = _mm512_castsi512_si256((__m512i)b);
    return (f32x8)_mm256_dpbf16_ps((__m256)sum, (__m256bh)a, (__m256bh)half);
#else
    u32x8 half;
    memcpy(&half, &b, sizeof half);
    f32x8 first = (f32x8)(a << 16) * (f32x8)(half << 16);
    return sum + first + (f32x8)(a & 0xffff0000u) * (f32x8)(half & 0xffff0000u);
#endif
}

/* Turns the pairs of queries and keys in rows of [query | key | value]; cosines, sines
 * [rows][PAIRS]. Backwards with direction -1. */
static void turn(bf16 *qkv, const float *cosines, const float *sines, float direction, long rows,
                 long heads)
{
    for (long row = 0; row < rows; row++, cosines += PAIRS, sines += PAIRS) {
        uint32_t *pairs = (uint32_t *)(qkv + row * 3 * heads * HEAD);
        float c[LANES] = {0}, s[LANES] = {0};
        memcpy(c, cosines, PAIRS * sizeof *c);
        memcpy(s, sines, PAIRS * sizeof *s);
        vec cosine = load(c), sine = load(s) * direction;
        for (long head = 0; head < 2 * heads; head++, pairs += PAIRS) {
            u32x16 old =
                load_pairs(pairs); /* reads on into the next head, and writes only its own */
            vec a = first_of(old), b = second_of(old);
            u32x16 turned = pair(a * cosine - b * sine, a * sine + b * cosine);
            memcpy(pairs, &turned, PAIRS * sizeof *pairs);
        }
    }
}

/* One head's channels of 16 rows (zero from `count` on), row to lane: out [PAIRS] */
static void to_lanes(const bf16 *rows, long stride, long count, u32x16 *out)
{
    uint32_t turned[PAIRS][LANES];
    if (count < LANES)
        memset(turned, 0, sizeof turned);
    else
        count = LANES;
    for (long lane = 0; lane < count; lane++) {
        uint32_t one[PAIRS];
        memcpy(one, rows + lane * stride, sizeof one);
        for (int p = 0; p < PAIRS; p++) turned[p][lane] = one[p];
    }
    memcpy(out, turned, sizeof turned);
}

static void from_lanes(const vec *channels, vec scale, bf16 *rows, long stride, long count)
{
    uint32_t turned[PAIRS][LANES];
    for (int p = 0; p < PAIRS; p++) {
        u32x16 both = pair(channels[2 * p] * scale, channels[2 * p + 1] * scale);
        memcpy(turned[p], &both, sizeof both);
    }
    for (long lane = 0; lane < count && lane < LANES; lane++) {
        uint32_t one[PAIRS];
        for (int p = 0; p < PAIRS; p++) one[p] = turned[p][lane];
        memcpy(rows + lane * stride, one, sizeof one);
    }
}

/* One head's channels, a row after the other: out [up to a multiple of KEYS_AT_ONCE][PAIRS], zeros
 * behind `count` */
static void gather_rows(const bf16 *rows, long stride, long count, uint32_t *out)
{
    for (long i = 0; i < count; i++)
        memcpy(out + i * PAIRS, rows + i * stride, HEAD * sizeof *rows);
    memset(out + count * PAIRS, 0, (size_t)(-count & (KEYS_AT_ONCE - 1)) * PAIRS * sizeof *out);
}

/* The same with rows 2i and 2i + 1 of a channel as a pair: out [up to `padded` / 2][HEAD] */
static void gather_row_pairs(const bf16 *rows, long stride, long count, long padded, uint32_t *out)
{
    for (long i = 0; i < count; i += 2, rows += 2 * stride, out += HEAD)
        for (int channel = 0; channel < HEAD; channel++)
            out[channel] = rows[channel] | (uint32_t)rows[stride + channel] << 16;
    memset(out, 0, (size_t)(padded - count) / 2 * HEAD * sizeof *out);
}

/* out[key] = lanes . key, for 16 lanes at once */
static void scores(const u32x16 *lanes, const uint32_t *keys, long count, vec *out)
{
    for (long key = 0; key < count; key += KEYS_AT_ONCE, keys += KEYS_AT_ONCE * PAIRS) {
        vec sum[KEYS_AT_ONCE] = {0};
        for (int p = 0; p < PAIRS; p++) {
#pragma GCC unroll 8
            for (int i = 0; i < KEYS_AT_ONCE; i++)
                sum[i] = dot(sum[i], lanes[p], everywhere(keys + i * PAIRS + p));
        }
#pragma GCC unroll 8
        for (int i = 0; i < KEYS_AT_ONCE; i++) out[key + i] = sum[i];
    }
}

/* out[channel] = sum over pairs of keys: weights x values */
static void mixture(const u32x16 *weights, const uint32_t *values, long pairs, vec *out)
{
    vec sum[HEAD] = {0};
    for (long i = 0; i < pairs; i++, values += HEAD)
#pragma GCC unroll 24
        for (int channel = 0; channel < HEAD; channel++)
            sum[channel] = dot(sum[channel], weights[i], everywhere(values + channel));
    memcpy(out, sum, sizeof sum);
}

/* What attention needs for one head of one picture; padded: its rows, up to a multiple of LANES */
typedef struct {
    vec *score, *d_score;                /* [padded], a lane per query */
    u32x16 *weight_pairs;                /* [padded / 2], a lane per query */
    uint32_t *keys, *values;             /* [padded][PAIRS] */
    uint32_t *key_pairs, *value_pairs;   /* [padded / 2][HEAD] */
    uint32_t *query_pairs, *d_out_pairs; /* the same */
    uint32_t *weights, *d_scores;        /* [key][pairs of padded queries] */
} scratch;

static scratch scratch_for(long padded)
{
    size_t rows = (size_t)padded * PAIRS, square = (size_t)padded * padded / 2;
    vec *vectors = room(ROOM_ATTENTION, 3 * (size_t)padded * sizeof(vec) +
                                            (6 * rows + 2 * square) * sizeof(uint32_t));
    scratch s = {.score = vectors, .d_score = vectors + padded};
    s.weight_pairs = (u32x16 *)(vectors + 2 * padded);
    s.weights = (uint32_t *)(vectors + 3 * padded);
    s.d_scores = s.weights + square;
    s.keys = s.d_scores + square;
    s.values = s.keys + rows;
    s.key_pairs = s.values + rows;
    s.value_pairs = s.key_pairs + rows;
    s.query_pairs = s.value_pairs + rows;
    s.d_out_pairs = s.query_pairs + rows;
    return s;
}

INLINE long padded_to_lanes(long rows)
{
    return (rows + LANES - 1) / LANES * LANES;
}

/* Turns queries and keys in qkv [rows][3][heads][HEAD], in place; out [rows][heads][HEAD];
 * log_sums [heads][rows]: log2 of the softmax's denominator */
void attention(bf16 *qkv, const float *cosines, const float *sines, const int32_t *starts,
               long pictures, long heads, bf16 *out, float *log_sums)
{
    long width = heads * HEAD, stride = 3 * width, all = starts[pictures];
    const float scale = LOG2_E / sqrtf(HEAD);
    turn(qkv, cosines, sines, 1, all, heads);
    for (long n = 0; n < pictures; n++) {
        long first = starts[n], count = starts[n + 1] - first;
        scratch s = scratch_for(padded_to_lanes(count));
        for (long head = 0; head < heads; head++) {
            const bf16 *queries = qkv + first * stride + head * HEAD;
            gather_rows(queries + width, stride, count, s.keys);
            gather_row_pairs(queries + 2 * width, stride, count, count, s.value_pairs);
            for (long row = 0; row < count; row += LANES) {
                u32x16 lanes[PAIRS];
                vec channels[HEAD], most = splat(-1e30f), sum = {0};
                to_lanes(queries + row * stride, stride, count - row, lanes);
                scores(lanes, s.keys, count, s.score);
                for (long key = 0; key < count; key++) most = larger(most, s.score[key]);
                most *= scale;
                for (long key = 0; key < count; key += 2) {
                    vec a = power_of_two(s.score[key] * scale - most);
                    vec b = power_of_two(s.score[key + 1] * scale - most);
                    sum += a + b;
                    s.weight_pairs[key / 2] = pair(a, b);
                }
                mixture(s.weight_pairs, s.value_pairs, count / 2, channels);
                from_lanes(channels, 1 / sum, out + (first + row) * width + head * HEAD, width,
                           count - row);
                for (long lane = 0; lane < LANES && row + lane < count; lane++)
                    log_sums[head * all + first + row + lane] = most[lane] + log2f(sum[lane]);
            }
        }
    }
}

INLINE void store_halves(uint32_t *to, long stride, u16x32 joined)
{
    u32x8 halves[2];
    memcpy(halves, &joined, sizeof joined);
    memcpy(to, &halves[0], sizeof halves[0]);
    memcpy(to + stride, &halves[1], sizeof halves[1]);
}

static void store_head(bf16 *to, vec first, f32x8 rest)
{
    vec padded = {0};
    memcpy(&padded, &rest, sizeof rest);
    u16x32 channels = join(first, padded);
    memcpy(to, &channels, HEAD * sizeof *to);
}

/* d_keys = scale d_scores x queries, d_values = weights x d_out: sums over `pairs` of queries,
 * whose loads four keys share */
static void key_gradients(const scratch *s, long count, long pairs, float scale, bf16 *d_keys,
                          bf16 *d_values, long stride)
{
    enum { KEYS = 4 };
    for (long key = 0; key < count;
         key += KEYS, d_keys += KEYS * stride, d_values += KEYS * stride) {
        const uint32_t *weights = s->weights + key * pairs, *d_scores = s->d_scores + key * pairs;
        vec key_sum[KEYS] = {0}, value_sum[KEYS] = {0}; /* the head's first channels */
        f32x8 key_rest[KEYS] = {0}, value_rest[KEYS] = {0};
        for (long i = 0; i < pairs; i++) {
            const uint32_t *queries = s->query_pairs + i * HEAD,
                           *d_outs = s->d_out_pairs + i * HEAD;
            u32x16 query = load_pairs(queries), d_out = load_pairs(d_outs);
            u32x8 query_rest = load_8_pairs(queries + LANES),
                  d_out_rest = load_8_pairs(d_outs + LANES);
#pragma GCC unroll 4
            for (int k = 0; k < KEYS; k++) {
                u32x16 weight = everywhere(weights + k * pairs + i),
                       d_score = everywhere(d_scores + k * pairs + i);
                key_sum[k] = dot(key_sum[k], query, d_score);
                key_rest[k] = dot_8(key_rest[k], query_rest, d_score);
                value_sum[k] = dot(value_sum[k], d_out, weight);
                value_rest[k] = dot_8(value_rest[k], d_out_rest, weight);
            }
        }
#pragma GCC unroll 4
        for (int k = 0; k < KEYS; k++) {
            store_head(d_keys + k * stride, key_sum[k] * scale, key_rest[k] * scale);
            store_head(d_values + k * stride, value_sum[k], value_rest[k]);
        }
    }
}

/* qkv as attention() left it; d_qkv is that of its input */
void attention_backward(const bf16 *qkv, const bf16 *out, const float *log_sums, const bf16 *d_out,
                        const float *cosines, const float *sines, const int32_t *starts,
                        long pictures, long heads, bf16 *d_qkv)
{
    long width = heads * HEAD, stride = 3 * width, all = starts[pictures];
    const float scale = 1 / sqrtf(HEAD);
    for (long n = 0; n < pictures; n++) {
        long first = starts[n], count = starts[n + 1] - first, padded = padded_to_lanes(count);
        scratch s = scratch_for(padded);
        for (long head = 0; head < heads; head++) {
            const bf16 *queries = qkv + first * stride + head * HEAD;
            const bf16 *d_outs = d_out + first * width + head * HEAD,
                       *outs = out + first * width + head * HEAD;
            bf16 *d_queries = d_qkv + first * stride + head * HEAD;
            gather_rows(queries + width, stride, count, s.keys);
            gather_rows(queries + 2 * width, stride, count, s.values);
            gather_row_pairs(queries + width, stride, count, count, s.key_pairs);
            gather_row_pairs(queries, stride, count, padded, s.query_pairs);
            gather_row_pairs(d_outs, width, count, padded, s.d_out_pairs);
            for (long row = 0; row < count; row += LANES) {
                u32x16 lanes[PAIRS], d_lanes[PAIRS], out_lanes[PAIRS];
                vec channels[HEAD], log_sum = {0}, along = {0};
                to_lanes(queries + row * stride, stride, count - row, lanes);
                to_lanes(d_outs + row * width, width, count - row, d_lanes);
                to_lanes(outs + row * width, width, count - row, out_lanes);
                for (int p = 0; p < PAIRS; p++)
                    along += first_of(d_lanes[p]) * first_of(out_lanes[p]) +
                             second_of(d_lanes[p]) * second_of(out_lanes[p]);
                long real = count - row < LANES ? count - row : LANES;
                memcpy(&log_sum, log_sums + head * all + first + row, (size_t)real * sizeof(float));
                scores(lanes, s.keys, count, s.score);
                scores(d_lanes, s.values, count, s.d_score);
                for (long key = 0; key < count; key += 2) {
                    vec a = power_of_two(s.score[key] * (scale * LOG2_E) - log_sum);
                    vec b = power_of_two(s.score[key + 1] * (scale * LOG2_E) - log_sum);
                    u16x32 weights = join(a, b);
                    u16x32 d_scores =
                        join(a * (s.d_score[key] - along), b * (s.d_score[key + 1] - along));
                    store_halves(s.weights + (key * padded + row) / 2, padded / 2, weights);
                    store_halves(s.d_scores + (key * padded + row) / 2, padded / 2, d_scores);
                    s.weight_pairs[key / 2] = interleave(d_scores);
                }
                mixture(s.weight_pairs, s.key_pairs, count / 2, channels);
                from_lanes(channels, splat(scale), d_queries + row * stride, stride, count - row);
            }
            key_gradients(&s, count, padded / 2, scale, d_queries + width, d_queries + 2 * width,
                          stride);
        }
    }
    turn(d_qkv, cosines, sines, -1, all, heads);
}
