/* What a run was: its settings, which may not change while its queue is worked, and its counts. */
#ifndef NS_RUNS_H
#define NS_RUNS_H

#include "jobs/db.h"
#include "src/mem.h"

struct run_setting {
    const char *name;
    const char *value;
    bool soft; /* may change low bits only: told, not refused */
};

/* Compares with what the queue was begun with. Hard ones that differ: E_MODEL naming them, unless
 * allow_change (then unfinished jobs begin anew) or nothing was computed yet and no job runs: first
 * give back those of dead workers. Afterwards the queue has these settings. changed: a line about
 * what differs, empty when nothing does; may be NULL. */
enum status run_settings(struct db *db, const struct run_setting *list, size_t n, bool allow_change,
                         struct buf *changed, struct err *e);
/* A setting's value, malloc'ed; NULL when it was never set. */
enum status run_setting(struct db *db, const char *name, char **value, struct err *e);

struct run_counts {
    uint64_t done, failed, prompt_rows, completion_tokens, sweeps, bytes_read;
    double seconds;
};
/* What is told about a run with each of its results. */
struct run_info {
    const char *worker, *model, *model_sha256;
    const char *settings; /* in one line, always written the same way */
    const char *machine;
};
enum status run_begin(struct db *db, const struct run_info *r, int64_t *id, struct err *e);
/* exit_code < 0: it still runs. */
enum status run_update(struct db *db, int64_t id, const struct run_counts *c, int exit_code,
                       struct err *e);

#endif
