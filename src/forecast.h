/* What a sweep and a night will take, from the shares of a plan and measured speeds.
 *
 * Expert use: expert i of a layer is chosen by a row with chance top_k / experts * r_i, where the
 * r_i are the quantiles of (-ln(1 - q))^skew, scaled to mean 1: one number says how uneven use is.
 * Rows choose alone, so an expert is needed by a sweep of S rows with chance 1 - (1 - p_i)^S, and a
 * cache that keeps the hottest experts saves exactly the largest of these chances. On recorded
 * routes this gives distinct experts and misses within a few percent from 4 to 64 rows.
 *
 * Reading and arithmetic run side by side, but most experts are known only once their layer's
 * router has been computed: beside their reads there is the arithmetic of routed and shared
 * experts, not that of attention. Beyond that a sweep takes the longer of the two and a part of the
 * shorter one. */
#ifndef NS_FORECAST_H
#define NS_FORECAST_H

#include "src/plan.h"

#define FORECAST_QUANTILES 64
#define FORECAST_BUSY      0.5 /* sweeps whose cores wait for less of them are held for pictures */

struct forecast {
    const struct plan_model *model;
    const struct plan *plan;
    const struct plan_speed *speed;
    double use[FORECAST_QUANTILES]; /* chance that one row takes an expert, rarest first */
    double cached;                  /* share of all experts that stay in memory */
    double trunk_weights;           /* of all layers, without routed experts, embedding and head */
    double trunk_bytes;             /* read by each sweep */
};

/* Borrows all three. */
void forecast_init(struct forecast *f, const struct plan_model *m, const struct plan *p,
                   const struct plan_speed *s);

/* Rows of a sweep. outputs: rows whose logits are wanted; context: rows before a row, on average.
 */
struct forecast_rows {
    double prefill, decode, outputs, context;
};
struct forecast_sweep {
    double uses;    /* experts needed, all layers */
    double fetches; /* of them not in memory */
    double bytes;   /* read: experts and layers that are not pinned */
    double read_s, compute_s;
    double seconds;
};
void forecast_sweep(const struct forecast *f, const struct forecast_rows *r,
                    struct forecast_sweep *out);

/* A whole queue, sweep by sweep: all jobs alike, admitted as room allows. Long queues are followed
 * for a few rounds and continued at that rate. */
struct forecast_night {
    double seconds, jobs_per_hour; /* seconds: of all jobs; 0 when their number is not known */
    double tokens_s;               /* answers, all jobs together */
    double bytes_per_token;        /* read for each of them */
    double sweeps_per_job;         /* sweeps / jobs */
    double rows;                   /* of a sweep, on average */
    struct forecast_sweep sweep;   /* the average one */
};
void forecast_night(const struct forecast *f, const struct plan_mix *mix,
                    struct forecast_night *out);

/* The skew with which sweeps of so many rows need that many experts of a layer. */
double forecast_skew(const struct config *c, double rows, double experts_needed);

/* What a run showed: its jobs, experts needed by an average sweep, seconds. Corrects skew, and
 * either the speed of reading or the slack, whichever was to take longer. */
struct forecast_run {
    struct plan_mix mix;
    double uses, seconds;
};
void forecast_learn(struct plan_speed *s, const struct plan_model *m, const struct plan *p,
                    const struct forecast_run *run);

#endif
