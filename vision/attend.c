/* Streamed attention. For one head and one block of queries, blocks of keys are taken in order; of
 * each the kernel's softmax gives weights that sum to 1 within the block. Its own share of the
 * whole is exp(block maximum - maximum so far) / largest weight, because the largest weight is 1 /
 * (sum of the block). Blocks are cut at fixed places, so a row's result does not depend on threads.
 */
#include "vision/attend.h"

#include <math.h>
#include <string.h>

#define SCATTER_ROWS 16

static size_t head_size(const struct vit_run *r)
{
    return r->vit->cfg.qkv / r->vit->cfg.heads;
}

size_t attend_scores(size_t size)
{
    return (size_t)ATTEND_QUERIES * (ATTEND_KEYS + 2 * size + 2);
}

size_t attend_turn(size_t size, uint32_t side)
{
    return (size_t)side * (size / 4) * 2;
}

void attend_angles(struct vit_run *r)
{
    size_t size = head_size(r), n = size / 4;
    uint32_t w = r->patches->grid_w, h = r->patches->grid_h, side = w > h ? w : h;
    for (size_t i = 0; i < n; i++) {
        float freq = 1.0f / powf(10000.0f, (float)(4 * i) / (float)size);
        for (uint32_t p = 0; p < side; p++) {
            float angle = (float)p * freq;
            r->turn[(p * n + i) * 2] = cosf(angle);
            r->turn[(p * n + i) * 2 + 1] = sinf(angle);
        }
    }
}

/* Pairs take turns: even ones by the column's angle, odd ones by the row's. */
static void rotate(float *out, const float *in, const float *by_x, const float *by_y, size_t size)
{
    for (size_t j = 0; j < size / 2; j++) {
        const float *t = (j % 2 ? by_y : by_x) + j / 2 * 2;
        float a = in[2 * j], b = in[2 * j + 1];
        out[2 * j] = a * t[0] - b * t[1];
        out[2 * j + 1] = a * t[1] + b * t[0];
    }
}

/* Keys and values: F32, or BF16 where that is what activations are rounded to. */
static void *stored(const struct vit_run *r, float *from, size_t i)
{
    return r->c->bf16 ? (void *)((uint16_t *)(void *)from + i) : (void *)(from + i);
}

static void store(const struct vit_run *r, float *to, size_t i, float value)
{
    if (r->c->bf16)
        *(uint16_t *)stored(r, to, i) = f32_to_bf16(value);
    else
        to[i] = value;
}

struct scatter {
    struct vit_run *r;
    float *qkv;
    size_t first, n;
};

/* Keys of one block of values lie side by side for each element of the head. */
static void put_value(struct vit_run *r, size_t head, size_t row, const float *in)
{
    size_t size = head_size(r), block = row / ATTEND_KEYS * ATTEND_KEYS;
    size_t keys = r->n - block < ATTEND_KEYS ? r->n - block : ATTEND_KEYS;
    size_t to = (head * r->n + block) * size + (row - block);
    for (size_t d = 0; d < size; d++) store(r, r->v, to + d * keys, in[d]);
}

static void scatter_row(const struct scatter *s, size_t i)
{
    struct vit_run *r = s->r;
    size_t size = head_size(r), row = s->first + i, qkv = r->vit->cfg.qkv, n = size / 4;
    const float *by_x = r->turn + row % r->patches->grid_w * n * 2;
    const float *by_y = r->turn + row / r->patches->grid_w * n * 2;
    float *in = s->qkv + i * 3 * qkv;
    for (size_t head = 0; head < r->vit->cfg.heads; head++, in += size) {
        float *q = r->q + row * qkv + head * size, *k = in + qkv;
        rotate(q, in, by_x, by_y, size);
        round_bf16(r->c, q, size);
        rotate(k, k, by_x, by_y, size);
        for (size_t d = 0; d < size; d++) store(r, r->k, (head * r->n + row) * size + d, k[d]);
        put_value(r, head, row, in + 2 * qkv);
    }
}

static void scatter_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct scatter *s = ctx;
    size_t end = (task + 1) * SCATTER_ROWS < s->n ? (task + 1) * SCATTER_ROWS : s->n;
    for (size_t i = task * SCATTER_ROWS; i < end; i++) scatter_row(s, i);
}

void attend_scatter(struct vit_run *r, float *qkv, size_t first, size_t n)
{
    struct scatter s = {r, qkv, first, n};
    pool_run(r->c->pool, (n + SCATTER_ROWS - 1) / SCATTER_ROWS, scatter_task, &s);
}

/* What one task holds: scores, this block's product, the sum so far, and per row the maximum so far
 * and the weight so far. */
struct stream {
    float *scores, *part, *sum, *max, *weight;
};

static struct stream stream_at(const struct vit_run *r, unsigned thread)
{
    size_t size = head_size(r);
    float *at = r->scores + thread * attend_scores(size);
    struct stream s = {.scores = at};
    s.part = s.scores + ATTEND_QUERIES * ATTEND_KEYS;
    s.sum = s.part + ATTEND_QUERIES * size;
    s.max = s.sum + ATTEND_QUERIES * size;
    s.weight = s.max + ATTEND_QUERIES;
    return s;
}

/* Turns a row of scores into weights of its block and returns the block's share of the row, scaling
 * down what was summed before when the maximum rose. */
static float take_block(const struct vit_run *r, const struct stream *s, size_t row, size_t keys)
{
    size_t size = head_size(r);
    float *scores = s->scores + row * keys, *sum = s->sum + row * size;
    float scale = 1.0f / sqrtf((float)size);
    float block = r->c->kern->scale_max(scores, keys, scale), before = s->max[row];
    float max = block > before ? block : before;
    r->c->kern->softmax(scores, keys);
    float fade = expf(before - max),
          share = expf(block - max) / r->c->kern->scale_max(scores, keys, 1);
    if (fade != 1.0f)
        for (size_t d = 0; d < size; d++) sum[d] *= fade;
    s->weight[row] = s->weight[row] * fade + share;
    s->max[row] = max;
    round_bf16(r->c, scores, keys);
    return share;
}

static void attend_block(const struct vit_run *r, const struct stream *s, size_t head, size_t key,
                         struct mm *product)
{
    size_t size = head_size(r), keys = r->n - key < ATTEND_KEYS ? r->n - key : ATTEND_KEYS;
    const struct kern *kern = r->c->kern;
    void (*mm)(const struct mm *) = r->c->bf16 ? kern->mm_bf16 : kern->mm_f32;
    product->w = stored(r, r->k, (head * r->n + key) * size);
    product->last = keys;
    product->ldy = keys;
    mm(product);
    float share[ATTEND_QUERIES];
    for (size_t i = 0; i < product->rows; i++) share[i] = take_block(r, s, i, keys);
    struct mm values = {.y = s->part,
                        .ldy = size,
                        .w = stored(r, r->v, (head * r->n + key) * size),
                        .cols = keys,
                        .x = s->scores,
                        .ldx = keys,
                        .rows = product->rows,
                        .last = size};
    mm(&values);
    for (size_t i = 0; i < product->rows; i++)
        kern->axpy(s->sum + i * size, share[i], s->part + i * size, size);
}

static void attend_task(void *ctx, size_t task, unsigned thread)
{
    const struct vit_run *r = ctx;
    size_t size = head_size(r), blocks = (r->n + ATTEND_QUERIES - 1) / ATTEND_QUERIES;
    size_t head = task / blocks, first = task % blocks * ATTEND_QUERIES;
    size_t rows = r->n - first < ATTEND_QUERIES ? r->n - first : ATTEND_QUERIES;
    float *q = r->q + first * r->vit->cfg.qkv + head * size;
    struct stream s = stream_at(r, thread);
    struct mm product = {.y = s.scores, .cols = size, .x = q, .ldx = r->vit->cfg.qkv, .rows = rows};
    memset(s.sum, 0, rows * size * sizeof *s.sum);
    for (size_t i = 0; i < rows; i++) {
        s.max[i] = -INFINITY;
        s.weight[i] = 0;
    }
    for (size_t key = 0; key < r->n; key += ATTEND_KEYS) attend_block(r, &s, head, key, &product);
    for (size_t i = 0; i < rows; i++)
        for (size_t d = 0; d < size; d++)
            q[i * r->vit->cfg.qkv + d] = s.sum[i * size + d] / s.weight[i];
}

void attend_all(struct vit_run *r)
{
    size_t blocks = (r->n + ATTEND_QUERIES - 1) / ATTEND_QUERIES;
    pool_run(r->c->pool, blocks * r->vit->cfg.heads, attend_task, r);
}
