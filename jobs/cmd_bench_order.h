/* Input order against auto order, in counts. */
#ifndef NS_CMD_BENCH_ORDER_H
#define NS_CMD_BENCH_ORDER_H

#include "jobs/cmd_model.h"
#include "jobs/pipeline.h"

struct bench_order {
    struct pipeline_report report;
    uint64_t images;      /* encoded */
    uint64_t prefix_rows; /* of prompts, each distinct beginning once: no order computes fewer */
};

/* Runs the jobs of o->operands in a queue of its own, in o->order, with the options of `run`
 * (--max-sequences, --cache-experts, --draft ...). Experts are read when they are needed, never
 * ahead, so that counts repeat exactly. */
enum status cmd_bench_order(struct bench_order *out, const struct cmd_options *o, struct err *e);
/* Both orders, one line each on standard output, and a line of bounds. */
enum status cmd_bench_orders(const struct cmd_options *o, struct err *e);

#endif
