/* Looks at a queue file again and again, between crashes, and remembers what it saw: a result, an
 * attempt or a stored token that was there once must be there for ever, and nothing may be there
 * twice. Reads the file with SQLite alone, so that it shares no mistake with the program. */
#ifndef NS_WATCH_H
#define NS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_JOBS 4096 /* ids of jobs, and of attempts, below this */

struct watch {
    uint64_t results[WATCH_JOBS], attempts[WATCH_JOBS]; /* hashes of whole rows; 0: none yet */
    struct {
        unsigned char *tokens; /* of the job's try `attempt` */
        size_t bytes;
        int64_t attempt;
    } partial[WATCH_JOBS];
    int64_t jobs, finished; /* rows seen last */
};

void watch_free(struct watch *w);
/* False when something is wrong, and each fault told on standard output. A file that is not there,
 * or has no tables yet, is right as long as nothing was seen before. Other processes may be writing
 * to it. */
bool watch_look(struct watch *w, const char *db_path);
/* Nobody holds the file, for reading or writing, or not for long. */
bool watch_unlocked(const char *db_path);

#endif
