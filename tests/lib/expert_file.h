/* Small checkpoints that hold nothing but experts, their tensors filled from a seed that the
 * tensor's name decides. */
#ifndef NS_EXPERT_FILE_H
#define NS_EXPERT_FILE_H

#include "tests/lib/st_file.h"

#include "src/quant.h"

#include <stdbool.h>

#define EXPERT_NAME "model.layers.%u.block_sparse_moe.experts.%u."

/* One expert's tensors. order: of "1", "2", "3" (w1, w2, w3), e.g. "312"; gap: unused bytes after
 * each tensor; MXFP4 scales are in 100..131. */
struct expert_form {
    enum dtype type;
    unsigned in, width;
    const char *order;
    size_t gap;
};
void expert_file_add(struct st_file *f, const struct expert_form *m, unsigned layer,
                     unsigned expert);
/* Whether bytes are those of "w<matrix>.weight" / "weight_packed" / "weight_scale". */
bool expert_file_same(const void *bytes, size_t n, unsigned layer, unsigned expert,
                      const char *tensor);

#endif
