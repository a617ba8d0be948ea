/* The vision tower: patches in, one vector per patch out (kimi-k3 6.4 to 6.6).
 *
 * A loaded tower is read only. Running one picture takes memory linear in its patches: scores are
 * never stored, the softmax is streamed. Every patch's result is the same for any number of
 * threads. */
#ifndef NS_VIT_H
#define NS_VIT_H

#include "vision/patch.h"
#include "vision/settings.h"
#include "vision/tensors.h"

struct vit_block {
    float *norm0, *norm1;   /* [hidden] */
    struct linear wqkv;     /* [3 qkv][hidden] */
    struct linear wo;       /* [hidden][qkv] */
    struct linear fc0, fc1; /* [mlp][hidden], [hidden][mlp] */
};

struct vit {
    struct vit_config cfg;
    struct mem *mem;
    struct linear proj;       /* [hidden][3 * patch * patch] */
    float *table;             /* [table_h][table_w][hidden] */
    float *final_norm;        /* [hidden] */
    struct vit_block *blocks; /* [layers] */
};

/* Reads all tensors of the tower. With t->mem NULL they are only checked and counted. End with
 * vit_close. */
enum status vit_open(struct vit *v, const struct vit_config *cfg, const struct tensors *t,
                     struct err *e);
void vit_close(struct vit *v);

/* One picture on its way. */
struct vit_run {
    const struct vit *vit;
    const struct compute *c;
    const struct patches *patches;
    float *x;      /* [n][hidden]: the residual stream, at last the result */
    size_t n;      /* patches */
    float *q;      /* [n][qkv]: queries, then attention's output */
    float *k;      /* [heads][n][head size] */
    float *v;      /* [heads][blocks of keys][head size][keys of the block] */
    float *turn;   /* [longer side][head size / 4][cos, sin] */
    float *rows;   /* [chunk][hidden] */
    float *wide;   /* [chunk][widest product] */
    float *scores; /* [threads][query block][key block + head size] */
};

/* Bytes that vit_begin takes. */
uint64_t vit_bytes(const struct vit_config *cfg, uint64_t n, uint64_t side, unsigned threads);
/* Operations that n patches take in so many of its blocks: products, attention. */
double vit_flop(const struct vit_config *cfg, double n, double layers);
/* Takes the memory; vit_end gives all of it back. patches must outlive r. */
enum status vit_begin(struct vit_run *r, const struct vit *v, const struct compute *c,
                      const struct patches *patches, struct err *e);
void vit_end(struct vit_run *r);
/* Patch embedding plus position: fills x. */
void vit_embed(struct vit_run *r);
/* All blocks and the last norm, in place on x. */
void vit_encode(struct vit_run *r);

#endif
