/* What became of a job, and the tokens of those under way. Each call is one transaction: a crash
 * leaves all of it or nothing. E_LEASE: another worker owns the job by now, its answer wins. */
#ifndef NS_RESULT_H
#define NS_RESULT_H

#include "jobs/queue.h"

/* What was learned about one picture. */
struct result_image {
    char sha256[JOB_SHA_CHARS];
    unsigned width, height, orientation, tokens;
    const char *warnings; /* JSON array of text */
    const char *path;     /* where it was found, when that was not known; else NULL */
};

struct result {
    enum status code;    /* OK: an answer */
    const char *message; /* why not; NULL with OK */
    /* With OK, and with E_INVALID_OUTPUT_JSON and E_TIMEOUT as far as it got; else NULL. UTF-8. */
    const char *content, *reasoning;
    size_t content_len, reasoning_len;
    const char *finish_reason;
    size_t prompt_tokens, completion_tokens;
    uint64_t seed;
    double prefill_s, decode_s;
    int64_t now;    /* milliseconds since 1970 */
    int64_t run_id; /* row of runs; 0: none */
    const struct result_image *images;
    size_t n_images;
};

/* Done (code OK) or failed. */
enum status result_store(struct db *db, const struct queue_job *job, const struct result *r,
                         struct err *e);
/* The try failed, another follows at r->now + delay_ms: an attempt is noted, the tokens go. */
enum status result_retry(struct db *db, const struct queue_job *job, const struct result *r,
                         int64_t delay_ms, struct err *e);

/* The tokens so far of one job under way. */
struct result_partial {
    int64_t id, fence;
    const int32_t *tokens;
    size_t n_tokens;
    double prefill_s, decode_s;
    size_t slot; /* the caller's */
    bool lost;   /* out: someone else has the job */
};
/* Stores the tokens of all of them and prolongs their leases, in one transaction. */
enum status result_checkpoint(struct db *db, struct result_partial *p, size_t n, int64_t now,
                              int64_t lease_ms, struct err *e);

#endif
