/* Weights of the tower and the projector: tensors read by name into the memory budget, every shape
 * checked against the configuration first.
 *
 * A matrix may be stored as X.weight (BF16 or F32) or as X.weight_packed + X.weight_scale (MXFP4):
 * what exists decides (kimi-k3 1.6). Vectors are widened to F32. */
#ifndef NS_TENSORS_H
#define NS_TENSORS_H

#include "src/mem.h"
#include "src/quant.h"
#include "src/safetensors.h"

/* store only: sizes are added to *bytes and nothing is read (mem NULL). */
struct tensors {
    const struct safetensors *store;
    struct mem *mem;
    uint64_t *bytes;
};

/* name: without ".weight". The stored shape may have any number of dimensions as long as the first
 * is `out` and the others multiply to `in`. End with tensors_free_matrix. */
enum status tensors_matrix(const struct tensors *t, struct linear *l, const char *name,
                           uint32_t out, uint32_t in, struct err *e);
void tensors_free_matrix(struct mem *m, struct linear *l);
/* n floats; name: the whole name. End with mem_free. */
enum status tensors_vector(const struct tensors *t, float **out, const char *name, uint64_t n,
                           struct err *e);

#endif
