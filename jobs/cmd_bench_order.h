/* Input order against auto order, in counts. */
#ifndef NS_CMD_BENCH_ORDER_H
#define NS_CMD_BENCH_ORDER_H

#include "jobs/cmd_model.h"
#include "jobs/pipeline.h"

struct bench_order {
    struct pipeline_report report;
    uint64_t images;      /* encoded */
    uint64_t prefix_rows; /* of prompts, each distinct beginning once: no order computes fewer */
    uint64_t prompts;     /* sweeps with rows of prompts */
};

/* For a closer look: add stands in for engine_add, route is told what routers choose. NULL: nothing
 * of the kind. */
struct bench_order_watch {
    enum status (*add)(struct engine *g, const struct engine_sequence *s, struct err *e);
    route_fn route;
};

/* Runs the jobs of o->operands in a queue of its own, in o->order, with the options of `run`
 * (--max-sequences, --cache-experts, --draft ...). Experts are read when they are needed, never
 * ahead, so that counts repeat exactly. watch may be NULL. */
enum status cmd_bench_order(struct bench_order *out, const struct cmd_options *o,
                            const struct bench_order_watch *watch, struct err *e);

#endif
