/* Sweeps of an engine under a load made up for measuring: what they need, read and take.
 *
 * A load is decode (so many sequences, each past its prompt) or prefill (so many prompt rows in
 * every sweep). Prompts are random tokens and answers are drawn at temperature 1, both from fixed
 * seeds, so the same load has the same tokens whatever is cached. */
#ifndef NS_BENCH_RUN_H
#define NS_BENCH_RUN_H

#include "src/engine.h"
#include "src/forecast.h"

struct bench_run_opts {
    const char *model_dir;
    struct compute compute;
    bool direct_io;
    uint64_t ram_bytes;
    const struct plan_model *model;
    const struct plan_speed *speed;
    double seconds; /* of measured sweeps, about; at least three sweeps */
    enum status (*between)(void *user, struct err *e); /* measured sweeps; NULL: nothing */
    void *user;
};

struct bench_run_load {
    size_t sequences; /* decode; 0: prefill */
    size_t rows;      /* prefill: rows of a sweep */
    double cached;    /* share of all experts to keep, 0..1; below 0: as planned */
};

struct bench_run_result {
    struct plan plan;
    size_t sweeps;  /* measured; the figures below are medians or means of them */
    double rows;    /* of a sweep */
    double sweep_s; /* median */
    double tokens_s, rows_s;
    double uses, fetches;               /* experts of a sweep */
    double expert_bytes, trunk_bytes;   /* of a sweep */
    double expert_wait_s, trunk_wait_s; /* of a sweep: nothing was computed meanwhile */
    double read_s;                      /* of a sweep: at least one read was in flight */
    /* Since the engine was opened: what was read, what a cache of this size must read with the
     * engine's own policy (each needed, uncached expert once), and with the best there is. */
    double read, needed, best;
    double skew; /* of expert use, as forecast.h means it */
    struct forecast_sweep expected;
};

/* E_BUDGET when the load does not fit into ram_bytes; E_STOPPED when the first sweep shows that it
 * would take more than `most_s` seconds. */
enum status bench_run(struct bench_run_result *out, const struct bench_run_opts *o,
                      const struct bench_run_load *load, double most_s, struct err *e);

#endif
