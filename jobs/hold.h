/* Whether the next sweep waits for jobs that are being prepared.
 *
 * A sweep costs about the same for a sequence more or less, so that with few of them most of it is
 * wasted. Where sweeps keep the cores busy, a wait loses nothing: what is prepared now need not be
 * prepared beside them. Where they wait for the disk, preparing beside them is free, and a wait is
 * worth what of the sweep the empty places would waste. Nothing here changes a result. */
#ifndef NS_HOLD_H
#define NS_HOLD_H

#include <stdbool.h>
#include <stddef.h>

/* Times in seconds, `now` of one clock. */
struct hold {
    double sweep_s, idle_s; /* of late: what a sweep takes, and how much of it the cores wait */
    double waited;          /* by the cores, for reads, up to the last sweep */
    double since, came;     /* a wait began, 0: none; something happened last */
};

/* sweep_s, idle_s: as expected, or 0. */
void hold_begin(struct hold *h, double sweep_s, double idle_s, double now);
/* n of `places` could sweep now, and others are being prepared. */
bool hold_sweep(struct hold *h, size_t n, size_t places, double now);
/* A job came out of preparing. */
void hold_came(struct hold *h, double now);
/* A sweep took so long; reads were waited for so long in all sweeps together. */
void hold_swept(struct hold *h, double took, double waited, double now);

#endif
