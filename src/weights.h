/* The weights outside the routed experts: what each layer needs, where it is, and borrowing a
 * layer's matrices.
 *
 * Small vectors become F32; matrices stay as the checkpoint has them, and come by direct I/O.
 * Layers beyond the pinned ones pass through two buffers: while one is in use, the readers that
 * also bring the experts read the layer that comes next into the other, several matrices at a time.
 */
#ifndef NS_WEIGHTS_H
#define NS_WEIGHTS_H

#include "src/config.h"
#include "src/mem.h"
#include "src/quant.h"
#include "src/readers.h"
#include "src/safetensors.h"

struct mlp_weights {
    struct linear gate, up, down; /* [width][hidden], [width][hidden], [hidden][width] */
};

struct kda_weights {
    struct linear q, k, v, o;              /* [C][hidden], o [hidden][C]; C = heads * dim */
    struct linear g, g_a, g_b;             /* full-rank gate g, or g_b(g_a x) */
    struct linear f_a, f_b, b;             /* decay f_b(f_a x); beta [heads][hidden] */
    const float *conv_q, *conv_k, *conv_v; /* [C][conv], last tap: the current token */
    const float *a;                        /* [heads]: exp(A_log) */
    const float *dt_bias;                  /* [C] */
    const float *o_norm;                   /* [dim] */
};

struct mla_weights {
    struct linear q_a, q_b, q; /* q_b(norm(q_a x)), or q x */
    const float *q_norm, *kv_norm;
    struct linear kv_a, g, o;
    /* kv_b, BF16 or F32, per head h at element h * (nope + v) * kv_lora: the key part transposed
     * [kv_lora][nope], then the value part [v][kv_lora] (absorbed form, kimi-k3 2.5) */
    struct linear kv_b;
};

struct layer_weights {
    const float *input_norm, *post_norm;
    const float *attn_res,
        *mlp_res; /* [hidden]: norm weight * projection, folded; NULL without AttnRes */
    struct kda_weights kda;
    struct mla_weights mla;
    struct mlp_weights mlp; /* dense layer, or the shared experts (out 0: none) */
    struct linear router;   /* [experts][hidden] */
    const float *router_bias;
    struct linear latent_down, latent_up;
    const float *latent_norm;
};

struct global_weights {
    struct linear embed, head; /* [vocab][hidden] */
    const float *norm;
    const float *out_res; /* folded like attn_res */
};

struct weights;

/* Bytes that a layer's weights take in memory; layer == config->layers: the global ones. E_MODEL
 * when a tensor is missing or has a wrong shape. */
enum status weights_bytes(const struct config *c, const struct safetensors *s, unsigned layer,
                          uint64_t *bytes, struct err *e);

/* What loading works on. Borrowed. */
struct weights_source {
    struct mem *mem;
    const struct config *config;
    const struct safetensors *files;
};

/* Loads the global weights and layers 0..pinned-1. readers: NULL to read a layer when it is asked
 * for. */
enum status weights_open(struct weights **out, const struct weights_source *from, size_t pinned,
                         struct readers *readers, struct err *e);
void weights_close(struct weights *w);
const struct global_weights *weights_global(const struct weights *w);
/* The pointer is good until the next call. E_IO, E_MODEL as for loading; then it may be asked for
 * again. */
enum status weights_layer(struct weights *w, unsigned layer, const struct layer_weights **out,
                          struct err *e);
/* The weights of a pinned layer; NULL for any other. */
const struct layer_weights *weights_pinned(const struct weights *w, unsigned layer);
/* Bytes read for layers that are not pinned, so far, and seconds that weights_layer waited for
 * them. */
void weights_stats(struct weights *w, uint64_t *streamed, double *wait_s);

#endif
