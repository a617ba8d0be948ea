/* Weight matrices: sizes, products with rows, single rows. Owns no memory; the loops are kern's. */
#include "src/quant.h"

#include <string.h>

#define GROUP          32  /* columns under one MXFP4 scale */
#define STRIP          32  /* most outputs of a kernel at once: splits fall on multiples of it */
#define GROUP_ROWS     512 /* of a task */
#define TASKS_A_THREAD 4
#define SMALL_WORK     ((size_t)1 << 16) /* multiplications not worth waking threads for */

bool linear_bytes(enum dtype type, uint64_t out, uint64_t in, uint64_t *w_bytes,
                  uint64_t *scale_bytes)
{
    *w_bytes = *scale_bytes = 0;
    if (out == 0 || in == 0 || out > UINT32_MAX || in > UINT32_MAX) return false;
    uint64_t n;
    switch (type) {
    case DT_F32:
        return !__builtin_mul_overflow(out * in, 4, w_bytes);
    case DT_BF16:
        return !__builtin_mul_overflow(out * in, 2, w_bytes);
    case DT_MXFP4:
        if (in % GROUP) return false;
        n = out * in;
        *w_bytes = n / 2;
        *scale_bytes = n / GROUP;
        return true;
    default:
        return false;
    }
}

void linear_part(const struct kern *k, const struct linear *l, float *y, size_t ldy, const float *x,
                 size_t ldx, size_t rows, size_t first, size_t last)
{
    struct mm a = {.y = y,
                   .ldy = ldy,
                   .w = l->w,
                   .scale = l->scale,
                   .cols = l->in,
                   .x = x,
                   .ldx = ldx,
                   .rows = rows,
                   .first = first,
                   .last = last};
    if (rows == 0 || first >= last) return;
    if (l->type == DT_F32)
        k->mm_f32(&a);
    else if (l->type == DT_BF16)
        k->mm_bf16(&a);
    else
        k->mm_mxfp4(&a);
}

struct apply {
    const struct compute *c;
    const struct linear *l;
    float *y;
    size_t ldy;
    const float *x;
    size_t ldx, rows;
    size_t parts, outs;    /* of a part */
    size_t groups, height; /* rows of a group */
};

static void apply_task(void *ctx, size_t task, unsigned thread)
{
    (void)thread;
    const struct apply *a = ctx;
    size_t first = task % a->parts * a->outs, last = first + a->outs;
    size_t row = task / a->parts * a->height, rows = a->rows - row;
    if (last > a->l->out) last = a->l->out;
    if (rows > a->height) rows = a->height;
    linear_part(a->c->kern, a->l, a->y + row * a->ldy, a->ldy, a->x + row * a->ldx, a->ldx, rows,
                first, last);
}

/* A kernel packs its rows for each task and widens W for each group of rows: groups are as large as
 * it takes them at a time, and there are only as many parts as keep all threads busy. */
void linear_apply(const struct compute *c, const struct linear *l, float *y, size_t ldy,
                  const float *x, size_t ldx, size_t rows)
{
    struct apply a = {c, l, y, ldy, x, ldx, rows, 1, l->out, 1, rows};
    size_t threads = pool_threads(c->pool);
    if (threads > 1 && rows * l->in * l->out > SMALL_WORK) {
        a.groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
        a.height = (rows + a.groups - 1) / a.groups;
        a.groups = (rows + a.height - 1) / a.height;
        a.parts = (threads * TASKS_A_THREAD + a.groups - 1) / a.groups;
        a.outs = (l->out / a.parts / STRIP + 1) * STRIP;
        a.parts = (l->out + a.outs - 1) / a.outs;
    }
    pool_run(c->pool, a.groups * a.parts, apply_task, &a);
}

void round_bf16(const struct compute *c, float *x, size_t n)
{
    if (c->bf16) c->kern->round_bf16(x, n);
}

void linear_row(const struct linear *l, size_t r, float *out)
{
    size_t n = l->in;
    const uint8_t *w = l->w;
    if (l->type == DT_F32) {
        memcpy(out, w + r * n * sizeof(float), n * sizeof(float));
    } else if (l->type == DT_BF16) {
        for (size_t i = 0; i < n; i++) {
            uint16_t b;
            memcpy(&b, w + (r * n + i) * sizeof b, sizeof b);
            out[i] = bf16_to_f32(b);
        }
    } else {
        kern_widen_mxfp4(out, w + r * n / 2, l->scale + r * n / GROUP, n);
    }
}
