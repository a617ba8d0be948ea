/* Where the next claim begins, so that jobs that begin alike come together and none waits for ever.
 *
 * Claims walk through the places of the queue (place.h). When TURN_PASSED jobs of its priority went
 * past the oldest one that waits, the walk goes on at that job's place, so that those like it come
 * with it; at twice as many, claims are in input order until that is no longer so. So no job waits
 * longer than by input order, twice TURN_PASSED jobs and one claim. Claims of other workers are not
 * counted. */
#ifndef NS_TURN_H
#define NS_TURN_H

#include "jobs/queue.h"

#define TURN_PASSED 16384

struct turn {
    int64_t limit; /* TURN_PASSED */
    bool input;    /* input order is asked for */
    /* its own */
    bool known;
    int64_t priority, oldest;
    int64_t before, taken; /* jobs of this priority: older than oldest; no longer waiting */
};

/* Sets w->input_order, w->place and w->priority for the next claim. */
enum status turn_next(struct db *db, struct turn *t, struct queue_worker *w, struct err *e);
/* What was claimed. */
void turn_claimed(struct turn *t, struct queue_worker *w, const struct queue_job *jobs, size_t n);

#endif
