/* Queue files for tests: a fresh one with a few jobs in it, without going through an import. */
#ifndef NS_JOBS_H
#define NS_JOBS_H

#include "jobs/queue.h"
#include "jobs/schema.h"

/* An empty queue file test_path(name) with the schema; fails the case and gives NULL otherwise. */
struct db *jobs_open(const char *name, const struct db_opts *o);
/* n pending jobs a0, a1, ... of one input, all of priority 0, each at its own place. */
void jobs_add(struct db *db, int n);
/* One integer; fails the case on an error. */
int64_t jobs_int(struct db *db, const char *sql);

#endif
