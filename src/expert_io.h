/* Where each routed expert's bytes are, and getting them.
 *
 * An expert is three matrices: w1 (gate) [width][in], w3 (up) [width][in], w2 (down) [in][width],
 * as MXFP4 (weight_packed + weight_scale) or BF16 / F32 (weight); one form per layer. Where the
 * tensors of one expert lie back to back in the file, in any order, they come with one read,
 * aligned outward for direct I/O; else tensor by tensor. Names, shapes and types are checked at
 * open. */
#ifndef NS_EXPERT_IO_H
#define NS_EXPERT_IO_H

#include "src/mem.h"
#include "src/safetensors.h"

#include <stdbool.h>

struct expert_io;

struct expert_io_opts {
    struct mem *mem;
    const struct safetensors *files;
    /* printf format with two %u: layer and expert, e.g.
     * "model.layers.%u.block_sparse_moe.experts.%u."; used at open only */
    const char *name_format;
    const uint8_t *is_moe; /* [layers]: 1 where the layer has routed experts */
    unsigned layers, experts;
    unsigned in, width; /* in: latent (or hidden) size; width: expert size */
};

/* E_MODEL when a tensor is missing or has another shape or type than its layer's. */
enum status expert_io_open(struct expert_io **out, const struct expert_io_opts *o, struct err *e);
void expert_io_close(struct expert_io *x);

/* key = layer * experts + expert */
uint32_t expert_key(const struct expert_io *x, unsigned layer, unsigned expert);
/* Of one expert as stored, the largest of all layers. */
uint64_t expert_bytes(const struct expert_io *x);
/* What a buffer must hold for any expert: a multiple of OS_DIRECT_ALIGN, the same with direct I/O
 * and without. */
uint64_t expert_slot_bytes(const struct expert_io *x);

/* Where the i-th of an expert's runs of neighbouring bytes is; false beyond the last. */
bool expert_io_run(const struct expert_io *x, uint32_t key, unsigned i, unsigned *file,
                   uint64_t *offset, uint64_t *bytes);

/* An expert_fetch_fn (user = struct expert_io *); key: of a layer with experts. dst: aligned to
 * OS_DIRECT_ALIGN, expert_slot_bytes long. A read that fails in spite of os.h's retries is E_IO
 * naming file, layer and expert. E_MODEL, naming the same, for a scale that is not a number. *at:
 * where in dst the expert begins. Thread safe. */
enum status expert_io_fetch(void *user, uint32_t key, void *dst, size_t *at, struct err *e);

/* The three matrices inside a fetched buffer (data = dst + at), each w aligned for its type. They
 * live as long as the buffer holds the expert. */
struct expert_weights {
    struct linear w1, w2, w3;
};
void expert_weights_at(const struct expert_io *x, uint32_t key, const void *data,
                       struct expert_weights *w);

#endif
