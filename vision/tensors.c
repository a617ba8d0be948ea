/* Loading of matrices and vectors. With mem NULL the same checks run and only sizes are counted, so
 * that the plan's figure and the loading cannot differ. */
#include "vision/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Room that one block takes in the budget beyond its bytes. */
#define BLOCK_OVERHEAD 256

static enum status find(const struct tensors *t, const char *name, const char *suffix,
                        const struct tensor_info **out, struct err *e)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    *out = safetensors_find(t->store, full);
    return *out ? OK : err_set(e, E_MODEL, "tensor %s is missing", full);
}

static enum status check_shape(const struct tensor_info *i, uint64_t out, uint64_t in,
                               struct err *e)
{
    uint64_t rest = 1;
    for (unsigned d = 1; d < i->dims; d++) {
        if (i->shape[d] == 0 || i->shape[d] > in / rest)
            rest = UINT64_MAX;
        else
            rest *= i->shape[d];
        if (rest > in) break;
    }
    if (i->dims >= 1 && i->shape[0] == out && rest == in) return OK;
    return err_set(e, E_MODEL,
                   "tensor %s: expected %" PRIu64 " x %" PRIu64 ", found %u dimensions, the first "
                   "%" PRIu64,
                   i->name, out, in, i->dims, i->dims ? i->shape[0] : 0);
}

/* Reads a tensor whole, or counts it. */
static enum status take(const struct tensors *t, const struct tensor_info *i, void *out_ptr,
                        uint64_t want, struct err *e)
{
    *(void **)out_ptr = NULL;
    if (i->bytes != want)
        return err_set(e, E_MODEL, "tensor %s has %" PRIu64 " bytes, expected %" PRIu64, i->name,
                       i->bytes, want);
    if (t->bytes) *t->bytes += want + BLOCK_OVERHEAD;
    if (!t->mem) return OK;
    enum status rc = mem_alloc_aligned(t->mem, out_ptr, want, 64, i->name, e);
    return rc ? rc : safetensors_read(t->store, i, *(void **)out_ptr, e);
}

static enum status load_packed(const struct tensors *t, struct linear *l, const char *name,
                               struct err *e)
{
    const struct tensor_info *p, *s;
    uint64_t wb, sb;
    enum status rc = find(t, name, ".weight_packed", &p, e);
    if (!rc) rc = find(t, name, ".weight_scale", &s, e);
    if (rc) return rc;
    if (!linear_bytes(DT_MXFP4, l->out, l->in, &wb, &sb))
        return err_set(e, E_MODEL, "tensor %s: %u columns cannot be MXFP4", name, l->in);
    if (p->type != DT_U8 || s->type != DT_U8)
        return err_set(e, E_MODEL, "tensor %s: packed weights must be U8", name);
    rc = check_shape(p, l->out, l->in / 2, e);
    if (!rc) rc = check_shape(s, l->out, l->in / 32, e);
    if (!rc) rc = take(t, p, &l->w, wb, e);
    if (!rc) rc = take(t, s, &l->scale, sb, e);
    if (!rc && l->scale && memchr(l->scale, 255, sb))
        rc = err_set(e, E_MODEL, "tensor %s.weight_scale holds the code 255 (not a number)", name);
    return rc;
}

enum status tensors_matrix(const struct tensors *t, struct linear *l, const char *name,
                           uint32_t out, uint32_t in, struct err *e)
{
    *l = (struct linear){.type = DT_MXFP4, .out = out, .in = in};
    char full[256];
    snprintf(full, sizeof full, "%s.weight", name);
    const struct tensor_info *i = safetensors_find(t->store, full);
    enum status rc;
    uint64_t wb, sb;
    if (!i && snprintf(full, sizeof full, "%s.weight_packed", name) > 0 &&
        safetensors_find(t->store, full))
        rc = load_packed(t, l, name, e);
    else if (!i)
        rc = err_set(e, E_MODEL, "tensor %s.weight is missing", name);
    else if (i->type != DT_BF16 && i->type != DT_F32)
        rc = err_set(e, E_MODEL, "tensor %s must be BF16 or F32", full);
    else {
        l->type = i->type;
        rc = check_shape(i, out, in, e);
        if (!rc && !linear_bytes(l->type, out, in, &wb, &sb))
            rc = err_set(e, E_MODEL, "tensor %s: impossible size", full);
        if (!rc) rc = take(t, i, &l->w, wb, e);
    }
    if (rc && t->mem) tensors_free_matrix(t->mem, l);
    return rc;
}

void tensors_free_matrix(struct mem *m, struct linear *l)
{
    union {
        const void *c;
        void *v;
    } w = {l->w}, s = {l->scale};
    mem_free(m, w.v);
    mem_free(m, s.v);
    *l = (struct linear){0};
}

enum status tensors_vector(const struct tensors *t, float **out, const char *name, uint64_t n,
                           struct err *e)
{
    *out = NULL;
    const struct tensor_info *i;
    enum status rc = find(t, name, "", &i, e);
    if (rc) return rc;
    unsigned size = i->type == DT_F32 ? 4 : i->type == DT_BF16 ? 2 : 0;
    if (!size || i->bytes != n * size)
        return err_set(e, E_MODEL, "tensor %s: expected %" PRIu64 " values, BF16 or F32", name, n);
    if (t->bytes) *t->bytes += n * 4 + BLOCK_OVERHEAD;
    if (!t->mem) return OK;
    rc = mem_array(t->mem, out, n, 4, name, e);
    if (rc) return rc;
    /* BF16 is read into the upper half and widened from the front. */
    char *at = (char *)*out + (size == 2 ? n * 2 : 0);
    rc = safetensors_read(t->store, i, at, e);
    for (uint64_t k = 0; !rc && size == 2 && k < n; k++) {
        uint16_t b;
        memcpy(&b, at + k * 2, 2);
        (*out)[k] = bf16_to_f32(b);
    }
    if (rc) {
        mem_free(t->mem, *out);
        *out = NULL;
    }
    return rc;
}
