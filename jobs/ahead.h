/* The thread that prepares jobs while the sweeps run: jobs go in claimed and come out ready, in the
 * same order. The caller bounds how many are inside. */
#ifndef NS_AHEAD_H
#define NS_AHEAD_H

#include "jobs/prepare.h"

struct ahead;

/* Seconds that ahead_take waited, and what pictures took meanwhile; the rest of them are prompts
 * and reading files. Beside these, what pictures took in all. */
struct ahead_waits {
    double seconds;
    struct vision_times waited, all;
};

/* At most `cap` jobs inside at a time. */
enum status ahead_open(struct ahead **out, struct prepare *p, size_t cap, struct err *e);
/* Ends the thread after the job it is at; jobs inside are the caller's again. */
void ahead_close(struct ahead *a);

/* r->from is set; r is the thread's until it comes back. Less than cap must be inside. */
void ahead_submit(struct ahead *a, struct ready *r);
/* The next ready one; NULL when none came within wait_s seconds. */
struct ready *ahead_take(struct ahead *a, double wait_s);
/* From the thread that takes. */
void ahead_waits(const struct ahead *a, struct ahead_waits *out);
size_t ahead_inside(struct ahead *a);

#endif
