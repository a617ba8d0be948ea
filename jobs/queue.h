/* The states of jobs, and who works on which.
 *
 *   pending -> running -> done | failed | retry_wait -> pending ...      cancelled from any
 *
 * A claim is one UPDATE ... RETURNING; it gives the job a lease and a fencing number one higher
 * than before. Whoever writes about a claimed job names that number: after the lease ran out and
 * another claimed the job, the old number fits nothing and the write is E_LEASE. Times are passed
 * in, in milliseconds since 1970. */
#ifndef NS_QUEUE_H
#define NS_QUEUE_H

#include "jobs/db.h"
#include "jobs/job.h"

/* The kernel's lock on FILE.lock beside the database: exclusive for `run`, shared for workers. It
 * ends with the process, however it dies. E_LOCKED. */
enum status queue_lock(int *fd, const char *db_path, bool shared, struct err *e);
void queue_unlock(int *fd);
/* Does a `run` hold it? Workers' shared locks do not show. */
bool queue_is_locked(const char *db_path);

struct queue_worker {
    const char *name; /* unique among those alive: host, process, start */
    int64_t lease_ms;
    bool input_order; /* claim in input order; else those that begin alike together */
    /* Not in input order: claims begin at this place, among jobs of this priority; then come the
     * others. 0: from the first on. */
    int64_t place, priority;
};

/* A picture as the import found it. */
struct queue_image {
    char *path;                 /* NULL: inline */
    char sha256[JOB_SHA_CHARS]; /* "": not known */
    int64_t bytes, mtime_ns;    /* of the file; mtime_ns 0: not known */
    int64_t rows;               /* of embeddings; 0: not known */
    bool shared;                /* other jobs have it too */
};

/* A claimed job. End with queue_job_free. */
struct queue_job {
    int64_t id, fence;
    int64_t attempt; /* number of this try, from 1; an interruption begins no new one */
    int64_t tried;   /* those before the user wanted it tried again */
    int64_t input_id, line, offset;
    int64_t priority, place, text_bytes;
    char *source; /* path of its input file; NULL for pictures and folders */
    char *custom_id, *spec;
    size_t spec_len;
    struct queue_image *images;
    size_t n_images;
    int64_t redraws; /* earlier tries that gave no JSON where JSON was asked for */
    int32_t *tokens; /* those it had when it was interrupted */
    size_t n_tokens;
    double prefill_s, decode_s;
};
void queue_job_free(struct queue_job *j);

/* Claims up to `max` jobs that are ready at `now`; *n of them are written to out, in the order in
 * which they should run. Due retries and other workers' jobs whose lease ran out are taken back
 * first. */
enum status queue_claim(struct db *db, const struct queue_worker *w, int64_t now,
                        struct queue_job *out, size_t max, size_t *n, struct err *e);

/* Within a transaction of the caller: the state change of a claimed job. E_LEASE: someone else has
 * it. */
enum status queue_finish(struct db *db, int64_t id, int64_t fence, const char *state,
                         struct err *e);
enum status queue_renew(struct db *db, int64_t id, int64_t fence, int64_t until, struct err *e);
enum status queue_postpone(struct db *db, int64_t id, int64_t fence, int64_t due, struct err *e);

/* Gives back, as they were, the jobs that a worker still holds; worker NULL: everybody's, which
 * only the holder of the exclusive lock may do, since then they belong to dead processes. */
enum status queue_release(struct db *db, const char *worker, struct err *e);
/* The same for workers that were processes of this machine and are gone. */
enum status queue_release_gone(struct db *db, struct err *e);
/* Everybody's for the holder of the exclusive lock, else those of the gone. */
enum status queue_release_dead(struct db *db, bool alone, struct err *e);

struct queue_counts {
    int64_t pending, running, retry_wait, done, failed, cancelled;
};
enum status queue_counts(struct db *db, struct queue_counts *out, struct err *e);
int64_t queue_total(const struct queue_counts *c);
int64_t queue_unfinished(const struct queue_counts *c);
/* What the unfinished jobs hold: bytes of text, the most of one, and rows of pictures, `unknown`
 * for each of which the size is not known. */
struct queue_load {
    int64_t text_bytes, longest, image_rows;
};
enum status queue_load(struct db *db, int64_t unknown, struct queue_load *out, struct err *e);
/* When the next job may become ready: the least due time or lease end; INT64_MAX when none waits.
 */
enum status queue_next_due(struct db *db, int64_t *at, struct err *e);

/* Which jobs retry and cancel mean. All that is given must fit. */
struct queue_filter {
    const char *custom_id; /* or NULL */
    const char *state;     /* or NULL */
    const char *code;      /* of the result; or NULL */
    bool dry;              /* only count */
};
/* failed or cancelled -> pending, its result removed (attempts keep it). Pictures are taken as they
 * are by then. Bad lines and duplicates stay. *n: how many. */
enum status queue_retry(struct db *db, const struct queue_filter *f, int64_t *n, struct err *e);
/* pending, retry_wait or running -> cancelled, with a result that says so. */
enum status queue_cancel(struct db *db, const struct queue_filter *f, int64_t now, int64_t *n,
                         struct err *e);

#endif
