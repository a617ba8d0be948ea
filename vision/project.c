/* Gathers merge x merge patches into one row, then two products around the exact GELU and a norm.
 */
#include "vision/project.h"

#include <string.h>

#define CHUNK    256
#define OVERHEAD 256

static uint32_t cell_width(const struct vit_config *c)
{
    return c->merge * c->merge * c->hidden;
}

enum status project_open(struct project *p, const struct vit_config *cfg, const struct tensors *t,
                         struct err *e)
{
    *p = (struct project){.cfg = *cfg, .mem = t->mem};
    uint32_t cell = cell_width(cfg);
    enum status rc = tensors_matrix(t, &p->proj0, "mm_projector.proj.0", cell, cell, e);
    if (!rc) rc = tensors_matrix(t, &p->proj2, "mm_projector.proj.2", cfg->out, cell, e);
    if (!rc) rc = tensors_vector(t, &p->post_norm, "mm_projector.post_norm.weight", cfg->out, e);
    if (rc) project_close(p);
    return rc;
}

void project_close(struct project *p)
{
    if (!p->mem) return;
    tensors_free_matrix(p->mem, &p->proj0);
    tensors_free_matrix(p->mem, &p->proj2);
    mem_free(p->mem, p->post_norm);
    *p = (struct project){0};
}

uint64_t project_bytes(const struct vit_config *cfg)
{
    return (uint64_t)CHUNK * 2 * cell_width(cfg) * sizeof(float) + OVERHEAD;
}

/* The merge cell of row r: its patches in row-major order, side by side. */
static void gather(const struct vit_config *c, const float *x, uint32_t grid_w, size_t r, float *to)
{
    size_t across = grid_w / c->merge, top = r / across * c->merge, left = r % across * c->merge;
    size_t width = (size_t)c->merge * c->hidden;
    for (size_t y = 0; y < c->merge; y++)
        memcpy(to + y * width, x + ((top + y) * grid_w + left) * c->hidden, width * sizeof *to);
}

enum status project_apply(const struct project *p, const struct compute *c, const float *x,
                          uint32_t grid_w, uint32_t grid_h, float *rows, struct err *e)
{
    const struct vit_config *cfg = &p->cfg;
    size_t cell = cell_width(cfg), total = (size_t)(grid_w / cfg->merge) * (grid_h / cfg->merge);
    float *in;
    enum status rc = mem_array(p->mem, &in, CHUNK * 2 * cell, sizeof *in, "projector rows", e);
    if (rc) return rc;
    float *mid = in + CHUNK * cell;
    for (size_t at = 0; at < total; at += CHUNK) {
        size_t n = total - at < CHUNK ? total - at : CHUNK;
        float *out = rows + at * cfg->out;
        for (size_t i = 0; i < n; i++) gather(cfg, x, grid_w, at + i, in + i * cell);
        round_bf16(c, in, n * cell);
        linear_apply(c, &p->proj0, mid, cell, in, cell, n);
        c->kern->gelu_erf(mid, n * cell);
        round_bf16(c, mid, n * cell);
        linear_apply(c, &p->proj2, out, cfg->out, mid, cell, n);
        for (size_t i = 0; i < n; i++)
            c->kern->rms(out + i * cfg->out, out + i * cfg->out, p->post_norm, cfg->out,
                         cfg->post_eps);
    }
    mem_free(p->mem, in);
    return OK;
}
