/* Input files into the queue, so that doing it twice changes nothing.
 *
 * Lines are read twice: once for the hash of the whole file, then line by line. The hash and the
 * options decide: a file that is in the queue as it is now is skipped; one that was imported in
 * part (a crash) goes on where it stopped; one that changed is E_INPUT, or taken line by line
 * (IMPORT rerun: equal jobs keep their answers, wherever their lines moved), or left as it was.
 * Pictures and folders are told apart by the pictures' names. Bad lines become failed jobs.
 * Memory stays flat: rows are written in batches of bounded size. */
#ifndef NS_IMPORT_H
#define NS_IMPORT_H

#include "jobs/row.h"

struct import_opts {
    const char *const *paths;
    size_t n_paths;
    struct job_opts job;
    struct row_opts row;
    uint64_t max_line_bytes; /* 0: input.h's default */
    enum row_changed on_changed;
    bool skip_duplicates;
    uint32_t shard, shards; /* shard 1..shards; shards 0: everything */
    /* Each job that cannot run, as it is met; or NULL. */
    void (*note)(void *user, const char *path, const struct row *r);
    /* Now and then; false ends the import with E_STOPPED, what was written stays. Or NULL. */
    bool (*go_on)(void *user, uint64_t items);
    void *user;
};

struct import_counts {
    uint64_t items, other_shard;
    uint64_t outcome[ROW_OUTCOMES];
    uint64_t removed; /* rerun: jobs whose lines are gone */
};

enum status import_files(struct db *db, const struct import_opts *o, struct import_counts *out,
                         struct err *e);

#endif
