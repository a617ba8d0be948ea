/* Measures what the planner needs to know (plan_speed.h), in one or two seconds, with the experts
 * of the model itself and with kernels and threads as the run will have them. */
#ifndef NS_BENCH_SPEED_H
#define NS_BENCH_SPEED_H

#include "src/mem.h"
#include "src/plan_speed.h"
#include "src/quant.h"

struct bench_speed_opts {
    const char *model_dir;
    struct compute compute;
    struct mem *mem;
    uint64_t most_bytes; /* of memory to use meanwhile */
    bool direct_io;
};

/* skew and slack are those of plan_speed_guess. E_IO, E_MODEL as for opening the model; E_NOMEM. */
enum status bench_speed(struct plan_speed *out, const struct bench_speed_opts *o, struct err *e);

#endif
