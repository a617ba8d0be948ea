/* Attention of the tower: two-axis rotation, and a softmax streamed over blocks of keys
 * (kimi-k3 6.5, 6.6). Works on the buffers of a vit_run. */
#ifndef NS_ATTEND_H
#define NS_ATTEND_H

#include "vision/vit.h"

#define ATTEND_QUERIES 192 /* rows of one task: keys and values are widened once for all */
#define ATTEND_KEYS    256 /* columns of scores held at once */

/* Floats of r->scores for one thread; floats of r->v; floats of r->turn for a grid whose longer
 * side is `side`. */
size_t attend_scores(size_t head_size);
size_t attend_turn(size_t head_size, uint32_t side);

/* Fills r->turn: cosine and sine of position * 10000^(-4 i / head size). */
void attend_angles(struct vit_run *r);
/* Rotates queries and keys of rows [first, first + n) and puts them, and the values, where
 * attend_all wants them. qkv: [n][3][heads][head size]; its values may be rounded in place. */
void attend_scatter(struct vit_run *r, float *qkv, size_t first, size_t n);
/* r->q <- softmax(q k^T / sqrt(head size)) v, every head, every row. */
void attend_all(struct vit_run *r);

#endif
