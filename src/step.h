/* The inside of the engine: what one sweep takes up and what becomes of its tokens. For engine.c
 * only. */
#ifndef NS_STEP_H
#define NS_STEP_H

#include "src/engine.h"
#include "src/sweep.h"

/* Of one sequence in a sweep: its rows up to each cut and after the last one, and the states there
 * that are kept. */
#define STEP_SPANS (2 * SEQUENCE_CUTS + 1)

/* The output rows of one sequence in a sweep. */
struct output {
    struct sequence *s;
    struct span *span;
    size_t first, n; /* logits rows; n - 1 of them are after drafts */
    size_t given;    /* tokens that stand, 1..n */
};

struct engine {
    struct mem *mem;
    struct config config;
    struct plan plan;
    struct safetensors *files;
    struct readers *readers; /* NULL: nothing is read ahead */
    struct weights *weights;
    struct expert_io *io;
    struct expert_cache *cache;
    struct guess *guess; /* or NULL */
    struct sweep sweep;
    struct spec *spec; /* NULL: no drafts */
    struct draft_log log;
    struct affinity *affinity;   /* NULL: nothing is learned */
    struct prefix_store *prefix; /* NULL: nothing is shared */
    struct sequence **running;   /* [plan.sequences], in order of admission */
    size_t n_running;
    struct span *spans;     /* [plan.sequences * STEP_SPANS] */
    struct spec_text *live; /* [plan.sequences] */
    struct state *kept;     /* [plan.sequences * SEQUENCE_CUTS] of prefix, filled in this sweep */
    struct output *outputs; /* [plan.sequences] */
    size_t n_outputs;
    struct sweep_row *rows;
    size_t *out_rows;          /* [plan.sequences + draft_rows] */
    int32_t *drawn;            /* as out_rows */
    struct sample_entry *draw; /* [threads][vocab] */
    float *replay;             /* [threads][3 * kda_dim] */
    struct engine_stats stats;
    route_fn on_route; /* the caller's */
    void *user;
};

enum status step_open(struct engine *g, struct err *e);
void step_close(struct engine *g);
void step_remove(struct engine *g, size_t i);
/* A layer's choice for the rows of the present sweep. */
void step_route(void *engine, unsigned layer, const uint32_t *experts, const float *biased,
                size_t rows);

#endif
