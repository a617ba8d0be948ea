/* Merge of patch cells and the projector: the tower's vectors to rows of the language model
 * (kimi-k3 6.7). */
#ifndef NS_PROJECT_H
#define NS_PROJECT_H

#include "vision/settings.h"
#include "vision/tensors.h"

struct project {
    struct vit_config cfg;
    struct mem *mem;
    struct linear proj0, proj2; /* [cell][cell], [out][cell], cell = merge^2 * hidden */
    float *post_norm;           /* [out] */
};

/* As vit_open and vit_close. */
enum status project_open(struct project *p, const struct vit_config *cfg, const struct tensors *t,
                         struct err *e);
void project_close(struct project *p);

/* Bytes project_apply takes beside its output. */
uint64_t project_bytes(const struct vit_config *cfg);
/* x: [grid_h][grid_w][hidden]; rows: [grid_h / merge * grid_w / merge][out]. */
enum status project_apply(const struct project *p, const struct compute *c, const float *x,
                          uint32_t grid_w, uint32_t grid_h, float *rows, struct err *e);

#endif
