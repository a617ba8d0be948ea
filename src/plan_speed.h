/* How fast a machine is with a model's sizes: what bench_speed.h measures at start, and what runs
 * showed since. Kept as one line of text per machine and model, so that it is measured once. */
#ifndef NS_PLAN_SPEED_H
#define NS_PLAN_SPEED_H

#include "src/mem.h"

#include <stdbool.h>

/* Products were timed with so many rows. */
#define PLAN_SPEED_POINTS 5
extern const size_t plan_speed_rows[PLAN_SPEED_POINTS];

/* Every field is a double, in this order in the text. Rates are those of all threads together. */
struct plan_speed {
    double read_bytes_s;                     /* whole experts, several reads in flight */
    double memory_bytes_s;                   /* reading memory in order */
    double expert_flop_s[PLAN_SPEED_POINTS]; /* routed experts; a multiply and an add are two */
    double trunk_flop_s[PLAN_SPEED_POINTS];  /* matrices outside the routed experts */
    double vector_flop_s;                    /* dot products and sums of vectors in cache */
    double delta_flop_s;                     /* the recurrence of KDA, its state in cache */
    double gate_values_s;                    /* gated activations */
    double join_s;                           /* one fork and join of the threads, seconds */
    double skew;  /* of expert use: 0 all alike, 1 and more for favourites (forecast.h) */
    double slack; /* what sweeps took against their forecast; 1 before any was seen */
};

/* An ordinary machine, for a plan made without measuring. */
void plan_speed_guess(struct plan_speed *s, unsigned threads);
/* The rate of a product with that many rows, between and beyond the points. */
double plan_speed_product(const double flop_s[PLAN_SPEED_POINTS], double rows);

/* "read_bytes_s=2.1e+09 memory_bytes_s=..." */
enum status plan_speed_to_text(const struct plan_speed *s, struct buf *out, struct err *e);
/* False unless text has every field once and each is a number that can be; s is then worth nothing.
 */
bool plan_speed_from_text(struct plan_speed *s, const char *text);

#endif
