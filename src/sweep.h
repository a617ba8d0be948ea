/* One pass of a set of rows through all layers (design.md 2). */
#ifndef NS_SWEEP_H
#define NS_SWEEP_H

#include "src/layer.h"
#include "src/weights.h"

struct sweep_row {
    int32_t id;         /* token, when image is NULL */
    const float *image; /* [hidden] embedding row */
};

struct sweep {
    struct compute c;
    const struct config *k;
    struct weights *weights;
    struct moe moe;
    struct arena arena; /* sweep_bytes of memory */
    trace_fn trace;
    void *trace_user;
};

/* Scratch for a sweep: rows in flight, logits rows, positions of the longest sequence. */
struct sweep_size {
    size_t rows, logits, context;
    unsigned threads;
};
uint64_t sweep_bytes(const struct config *k, const struct sweep_size *s);

/* Runs all rows; *logits: [n_out][vocab] for rows out[0..n_out), inside the arena, good until the
 * next sweep. Advances every span's state and, at the end, its length. After an error the states
 * are worth nothing. */
enum status sweep_run(struct sweep *s, const struct batch *b, const struct sweep_row *rows,
                      const size_t *out, size_t n_out, float **logits, struct err *e);

#endif
