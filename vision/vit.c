/* Loading of the tower and its run over one picture. Rows go through the products in chunks, so
 * that only the residual stream and q, k, v are held for all of them; attention's output takes the
 * queries' place. */
#include "vision/vit.h"

#include "vision/attend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHUNK    512 /* rows in one product */
#define ROWS     8   /* rows of one small task */
#define OVERHEAD 256 /* what one block takes in the budget beyond its bytes */

static enum status load_block(struct vit *v, struct vit_block *b, const struct tensors *t,
                              unsigned n, struct err *e)
{
    const struct vit_config *c = &v->cfg;
    char name[96];
    enum status rc;
#define NAME(suffix)                                                                               \
    (snprintf(name, sizeof name, "vision_tower.encoder.blocks.%u.%s", n, suffix), name)
    rc = tensors_vector(t, &b->norm0, NAME("norm0.weight"), c->hidden, e);
    if (!rc) rc = tensors_vector(t, &b->norm1, NAME("norm1.weight"), c->hidden, e);
    if (!rc) rc = tensors_matrix(t, &b->wqkv, NAME("wqkv"), 3 * c->qkv, c->hidden, e);
    if (!rc) rc = tensors_matrix(t, &b->wo, NAME("wo"), c->hidden, c->qkv, e);
    if (!rc) rc = tensors_matrix(t, &b->fc0, NAME("mlp.fc0"), c->mlp, c->hidden, e);
    if (!rc) rc = tensors_matrix(t, &b->fc1, NAME("mlp.fc1"), c->hidden, c->mlp, e);
#undef NAME
    return rc;
}

enum status vit_open(struct vit *v, const struct vit_config *cfg, const struct tensors *t,
                     struct err *e)
{
    *v = (struct vit){.cfg = *cfg, .mem = t->mem};
    struct vit_block counted = {0};
    enum status rc = OK;
    if (t->mem)
        rc = mem_array(t->mem, &v->blocks, cfg->layers, sizeof *v->blocks, "vision blocks", e);
    if (t->bytes) *t->bytes += cfg->layers * sizeof *v->blocks + OVERHEAD;
    if (!rc)
        rc = tensors_matrix(t, &v->proj, "vision_tower.patch_embed.proj", cfg->hidden,
                            3 * cfg->patch * cfg->patch, e);
    if (!rc)
        rc = tensors_vector(t, &v->table, "vision_tower.patch_embed.pos_emb.weight",
                            (uint64_t)cfg->table_h * cfg->table_w * cfg->hidden, e);
    for (unsigned n = 0; !rc && n < cfg->layers; n++)
        rc = load_block(v, t->mem ? &v->blocks[n] : &counted, t, n, e);
    if (!rc)
        rc = tensors_vector(t, &v->final_norm, "vision_tower.encoder.final_layernorm.weight",
                            cfg->hidden, e);
    if (rc) vit_close(v);
    return rc;
}

void vit_close(struct vit *v)
{
    if (!v->mem) return;
    for (unsigned n = 0; v->blocks && n < v->cfg.layers; n++) {
        struct vit_block *b = &v->blocks[n];
        mem_free(v->mem, b->norm0);
        mem_free(v->mem, b->norm1);
        tensors_free_matrix(v->mem, &b->wqkv);
        tensors_free_matrix(v->mem, &b->wo);
        tensors_free_matrix(v->mem, &b->fc0);
        tensors_free_matrix(v->mem, &b->fc1);
    }
    tensors_free_matrix(v->mem, &v->proj);
    mem_free(v->mem, v->table);
    mem_free(v->mem, v->final_norm);
    mem_free(v->mem, v->blocks);
    *v = (struct vit){0};
}

/* Widest row that a product reads or writes. */
static size_t widest(const struct vit_config *c)
{
    size_t w = 3 * (size_t)c->qkv, patch = 3 * (size_t)c->patch * c->patch;
    if (c->mlp > w) w = c->mlp;
    return patch > w ? patch : w;
}

/* Floats of each buffer, in the order of the pointers from x to scores in struct vit_run. */
#define BUFFERS 7
static void buffer_sizes(const struct vit_config *c, uint64_t n, uint32_t side, unsigned threads,
                         uint64_t size[BUFFERS])
{
    uint64_t chunk = n < CHUNK ? n : CHUNK, head = c->qkv / c->heads;
    size[0] = n * c->hidden;
    size[1] = size[2] = size[3] = n * c->qkv;
    size[4] = attend_turn(head, side);
    size[5] = chunk * (c->hidden + widest(c));
    size[6] = threads * attend_scores(head);
}

uint64_t vit_bytes(const struct vit_config *cfg, uint64_t n, uint64_t side, unsigned threads)
{
    uint64_t size[BUFFERS], total = 0;
    buffer_sizes(cfg, n, (uint32_t)side, threads, size);
    for (int i = 0; i < BUFFERS; i++) total += size[i] * sizeof(float) + OVERHEAD;
    return total;
}

double vit_flop(const struct vit_config *c, double n, double layers)
{
    double linear = 4.0 * c->hidden * c->qkv + 2.0 * c->hidden * c->mlp;
    double embed = 3.0 * c->patch * c->patch * c->hidden;
    return 2 * n * (embed + layers * linear) + layers * 4 * n * n * c->qkv;
}

enum status vit_begin(struct vit_run *r, const struct vit *v, const struct compute *c,
                      const struct patches *patches, struct err *e)
{
    *r = (struct vit_run){.vit = v, .c = c, .patches = patches};
    r->n = (size_t)patches->grid_w * patches->grid_h;
    uint32_t side = patches->grid_w > patches->grid_h ? patches->grid_w : patches->grid_h;
    float **const to[BUFFERS] = {&r->x, &r->q, &r->k, &r->v, &r->turn, &r->rows, &r->scores};
    uint64_t size[BUFFERS];
    buffer_sizes(&v->cfg, r->n, side, pool_threads(c->pool), size);
    enum status rc = OK;
    for (int i = 0; !rc && i < BUFFERS; i++)
        rc = mem_array(v->mem, to[i], size[i], sizeof(float), "picture on its way", e);
    if (rc) {
        vit_end(r);
        return rc;
    }
    r->wide = r->rows + (r->n < CHUNK ? r->n : CHUNK) * v->cfg.hidden;
    attend_angles(r);
    return OK;
}

void vit_end(struct vit_run *r)
{
    float *const all[BUFFERS] = {r->x, r->q, r->k, r->v, r->turn, r->rows, r->scores};
    for (int i = 0; i < BUFFERS; i++) mem_free(r->vit->mem, all[i]);
    *r = (struct vit_run){0};
}

/* Work on rows that need no product: split over the pool, a few rows a task. */
struct small {
    const struct vit_run *r;
    void (*fn)(const struct small *s, size_t row);
    size_t first, n; /* rows of the picture */
    const float *weight;
    float *out;
};

static void small_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct small *s = ctx;
    size_t end = (task + 1) * ROWS < s->n ? (task + 1) * ROWS : s->n;
    for (size_t i = task * ROWS; i < end; i++) s->fn(s, i);
}

static void small_run(struct small *s)
{
    pool_run(s->r->c->pool, (s->n + ROWS - 1) / ROWS, small_task, s);
}

static void norm_row(const struct small *s, size_t i)
{
    const struct vit_run *r = s->r;
    size_t hidden = r->vit->cfg.hidden;
    float *y = s->out + i * hidden;
    r->c->kern->rms(y, r->x + (s->first + i) * hidden, s->weight, hidden, r->vit->cfg.norm_eps);
    round_bf16(r->c, y, hidden);
}

static void add_row(const struct small *s, size_t i)
{
    size_t hidden = s->r->vit->cfg.hidden;
    s->r->c->kern->axpy(s->r->x + (s->first + i) * hidden, 1.0f, s->out + i * hidden, hidden);
}

static void gelu_row(const struct small *s, size_t i)
{
    size_t mlp = s->r->vit->cfg.mlp;
    s->r->c->kern->gelu_tanh(s->out + i * mlp, mlp);
    round_bf16(s->r->c, s->out + i * mlp, mlp);
}

/* Where position `at` of a grid of `grid` falls in a table of `size`, with half-pixel centres: the
 * table's points that count, clamped at the borders, and their weights. */
struct sample {
    unsigned n;
    uint32_t point[4];
    float weight[4];
};

static uint32_t clamp_point(int64_t p, uint32_t size)
{
    return p < 0 ? 0 : p >= size ? size - 1 : (uint32_t)p;
}

static struct sample sample_linear(float from, uint32_t size)
{
    if (from < 0) from = 0;
    uint32_t low = clamp_point((int64_t)from, size);
    float f = from - (float)low;
    return (struct sample){2, {low, clamp_point(low + 1, size)}, {1.0f - f, f}};
}

/* Cubic convolution with a = -0.75. */
static struct sample sample_cubic(float from, uint32_t size)
{
    const float a = -0.75f;
    float low = floorf(from), t = from - low, u = 1.0f - t;
    struct sample s = {.n = 4};
    for (int i = 0; i < 4; i++) s.point[i] = clamp_point((int64_t)low + i - 1, size);
    s.weight[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    s.weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    s.weight[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
    s.weight[3] = ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a;
    return s;
}

static struct sample sample_at(const struct vit_config *c, uint32_t at, uint32_t grid,
                               uint32_t size)
{
    float from = ((float)at + 0.5f) * ((float)size / (float)grid) - 0.5f;
    return c->bicubic ? sample_cubic(from, size) : sample_linear(from, size);
}

/* x += the position table at this patch. A grid of the table's own size falls on its points. */
static void position_row(const struct small *s, size_t i)
{
    const struct vit_run *r = s->r;
    const struct vit_config *c = &r->vit->cfg;
    size_t row = s->first + i, hidden = c->hidden;
    uint32_t gw = r->patches->grid_w, gh = r->patches->grid_h;
    struct sample x = sample_at(c, (uint32_t)(row % gw), gw, c->table_w);
    struct sample y = sample_at(c, (uint32_t)(row / gw), gh, c->table_h);
    float *to = r->x + row * hidden;
    for (size_t j = 0; j < hidden; j++) {
        float sum = 0;
        for (unsigned v = 0; v < y.n; v++) {
            const float *line = r->vit->table + (size_t)y.point[v] * c->table_w * hidden + j;
            float across = 0;
            for (unsigned h = 0; h < x.n; h++) across += x.weight[h] * line[x.point[h] * hidden];
            sum += y.weight[v] * across;
        }
        to[j] += sum;
    }
}

void vit_embed(struct vit_run *r)
{
    const struct vit_config *c = &r->vit->cfg;
    size_t width = 3 * (size_t)c->patch * c->patch;
    for (size_t at = 0; at < r->n; at += CHUNK) {
        size_t n = r->n - at < CHUNK ? r->n - at : CHUNK;
        patch_fill(r->patches, at, n, r->wide);
        round_bf16(r->c, r->wide, n * width);
        linear_apply(r->c, &r->vit->proj, r->x + at * c->hidden, c->hidden, r->wide, width, n);
    }
    struct small s = {.r = r, .fn = position_row, .n = r->n};
    small_run(&s);
}

static void attention(struct vit_run *r, const struct vit_block *b)
{
    const struct vit_config *c = &r->vit->cfg;
    struct small s = {.r = r, .weight = b->norm0, .out = r->rows};
    for (s.first = 0; s.first < r->n; s.first += CHUNK) {
        s.n = r->n - s.first < CHUNK ? r->n - s.first : CHUNK;
        s.fn = norm_row;
        small_run(&s);
        linear_apply(r->c, &b->wqkv, r->wide, 3 * c->qkv, r->rows, c->hidden, s.n);
        attend_scatter(r, r->wide, s.first, s.n);
    }
    attend_all(r);
    round_bf16(r->c, r->q, r->n * c->qkv);
    s.fn = add_row;
    for (s.first = 0; s.first < r->n; s.first += CHUNK) {
        s.n = r->n - s.first < CHUNK ? r->n - s.first : CHUNK;
        linear_apply(r->c, &b->wo, r->rows, c->hidden, r->q + s.first * c->qkv, c->qkv, s.n);
        small_run(&s);
    }
}

static void feed_forward(struct vit_run *r, const struct vit_block *b)
{
    const struct vit_config *c = &r->vit->cfg;
    for (size_t at = 0; at < r->n; at += CHUNK) {
        size_t n = r->n - at < CHUNK ? r->n - at : CHUNK;
        struct small s = {
            .r = r, .fn = norm_row, .first = at, .n = n, .weight = b->norm1, .out = r->rows};
        small_run(&s);
        linear_apply(r->c, &b->fc0, r->wide, c->mlp, r->rows, c->hidden, n);
        s.fn = gelu_row;
        s.out = r->wide;
        small_run(&s);
        linear_apply(r->c, &b->fc1, r->rows, c->hidden, r->wide, c->mlp, n);
        s.fn = add_row;
        s.out = r->rows;
        small_run(&s);
    }
}

void vit_encode(struct vit_run *r)
{
    for (unsigned n = 0; n < r->vit->cfg.layers; n++) {
        attention(r, &r->vit->blocks[n]);
        feed_forward(r, &r->vit->blocks[n]);
    }
    struct small s = {.r = r, .fn = norm_row, .n = r->n, .weight = r->vit->final_norm, .out = r->x};
    small_run(&s);
}
