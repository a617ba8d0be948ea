/* Where the next claim begins, so that jobs that begin alike come together and none waits for ever.
 *
 * Claims walk through the places of the queue (place.h). The oldest job that waits is passed over
 * by at most TURN_PASSED jobs of its priority; then the walk goes on at that job's place. So no job
 * waits longer than by input order and TURN_PASSED jobs more. Claims of other workers are not
 * counted. */
#ifndef NS_TURN_H
#define NS_TURN_H

#include "jobs/queue.h"

#define TURN_PASSED 16384

struct turn {
    int64_t limit; /* TURN_PASSED */
    /* its own */
    bool known;
    int64_t priority, oldest;
    int64_t before, taken; /* jobs of this priority: older than oldest; no longer waiting */
};

/* Sets w->place and w->priority for the next claim. */
enum status turn_next(struct db *db, struct turn *t, struct queue_worker *w, struct err *e);
/* What was claimed. */
void turn_claimed(struct turn *t, struct queue_worker *w, const struct queue_job *jobs, size_t n);

#endif
