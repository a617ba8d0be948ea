/* How much room the jobs of a queue need, before memory is shared out. */
#ifndef NS_MEASURE_H
#define NS_MEASURE_H

#include "jobs/db.h"
#include "src/config.h"
#include "src/plan.h"
#include "src/tok.h"

struct measure {
    uint64_t jobs;         /* unfinished */
    uint64_t images;       /* of them */
    uint64_t unknown;      /* images of which nothing is known yet */
    uint64_t picture;      /* most bytes that reading and decoding one of the others takes */
    uint64_t picture_rows; /* most rows that one of the others has */
    uint64_t context; /* rows of the longest of them that the model can take, prompt and answer; 0
                         without jobs */
    struct plan_mix mix; /* what they are like on average */
};

/* image_rows: rows of a picture whose size is not known yet. Tokenises the jobs that may be the
 * longest, and those only. */
enum status measure_queue(struct db *db, const struct config *c, const struct tok *t,
                          unsigned image_rows, struct measure *out, struct err *e);

#endif
