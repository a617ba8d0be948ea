/* The results of several shards as one file, in the order of the input.
 *
 * Inputs are the same when their bytes are (or, for pictures and folders, their paths). A line that
 * two queues hold is taken once: an answer rather than a failure, else of the first queue named.
 * Doing it again gives the same file. */
#ifndef NS_MERGE_H
#define NS_MERGE_H

#include "jobs/db.h"

struct merge_counts {
    uint64_t answers, failures;
    uint64_t doubles;    /* lines in more than one queue */
    uint64_t unfinished; /* jobs without a result yet */
    uint64_t missing;    /* lines of the inputs that are in no queue */
};

enum status merge_queues(struct db *const *dbs, size_t n, const char *path,
                         struct merge_counts *out, struct err *e);

#endif
