/* Finding and loading the weights of one layer. A list of parts, one for each tensor, serves for
 * counting bytes, checking shapes and loading.
 *
 * A matrix of WEIGHTS_DIRECT bytes and more keeps its place within a block of OS_DIRECT_ALIGN, so
 * that a direct read rounded outward lands on aligned memory; files that are not direct have the
 * same layout. Everything else begins at a multiple of 64. */
#ifndef NS_WEIGHTS_LOAD_H
#define NS_WEIGHTS_LOAD_H

#include "src/weights.h"

#define WEIGHTS_PARTS  40
#define WEIGHTS_DIRECT ((uint64_t)64 << 10)

enum weights_kind {
    WEIGHTS_LINEAR, /* matrix as stored */
    WEIGHTS_PLAIN,  /* matrix, MXFP4 expanded to BF16 */
    WEIGHTS_VECTOR, /* F32 vector of exactly n */
    WEIGHTS_PREFIX  /* F32 vector, the first n of at least n (padded A_log) */
};

struct weights_part {
    enum weights_kind kind;
    uint32_t out, in; /* a vector has in 1 */
    size_t field;     /* offset in struct layer_weights or struct global_weights */
    enum dtype type;
    const struct tensor_info *main, *scale;
    uint64_t at, scale_at; /* in the block */
};

struct weights_parts {
    struct weights_part part[WEIGHTS_PARTS];
    size_t n;
    uint64_t bytes; /* of the block */
};

/* layer == config->layers: the global ones. E_MODEL as weights_bytes. */
enum status weights_parts_of(struct weights_parts *p, const struct config *c,
                             const struct safetensors *s, unsigned layer, struct err *e);
/* Reads one part to its place in block (aligned to OS_DIRECT_ALIGN). Different parts may be loaded
 * at the same time. *bytes: read. */
enum status weights_part_load(const struct weights_source *s, const struct weights_part *p,
                              char *block, uint64_t *bytes, struct err *e);
/* All parts are there: points the fields at them and works out what is derived. */
enum status weights_layer_ready(const struct config *c, const struct weights_parts *p, char *block,
                                unsigned layer, struct layer_weights *l, struct err *e);
void weights_global_ready(const struct weights_parts *p, char *block, struct global_weights *g);

#endif
