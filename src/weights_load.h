/* Finding and loading the weights of one layer: a list of wants (name, shape, destination) serves
 * for counting bytes, checking shapes and loading. Holds nothing itself; safe to call from several
 * threads. */
#ifndef NS_WEIGHTS_LOAD_H
#define NS_WEIGHTS_LOAD_H

#include "src/weights.h"

/* What loading works on. Borrowed. */
struct weights_source {
    struct mem *mem;
    const struct config *config;
    const struct safetensors *files;
};

/* Loads a layer's weights into block (weights_bytes long, aligned to 64) and points the fields at
 * it. */
enum status weights_load_layer(const struct weights_source *s, unsigned layer, void *block,
                               struct layer_weights *l, struct err *e);
enum status weights_load_global(const struct weights_source *s, void *block,
                                struct global_weights *g, struct err *e);

#endif
