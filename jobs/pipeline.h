/* The flow of a night: jobs are claimed a few ahead, prepared beside the sweeps, admitted to the
 * engine, and stored when they end. Read pipeline.c first.
 *
 * A job's fault fails that job; any other ends the run with everything kept: tokens so far stored,
 * leases given back. No transaction is open while something computes. */
#ifndef NS_PIPELINE_H
#define NS_PIPELINE_H

#include "jobs/ahead.h"
#include "jobs/queue.h"
#include "src/engine.h"

/* The engine's face, so that tests can stand in for it. */
struct pipeline_engine {
    struct engine *g;
    enum status (*add)(struct engine *g, const struct engine_sequence *s, struct err *e);
    void (*remove)(struct engine *g, uint64_t tag);
    enum status (*sweep)(struct engine *g, engine_token_fn fn, void *user, struct err *e);
    void (*stats)(const struct engine *g, struct engine_stats *out);
    struct affinity *affinity; /* or NULL */
};

enum pipeline_event {
    PIPELINE_STARTED,
    PIPELINE_SWEPT,
    PIPELINE_JOB,   /* done or failed: job, code, message */
    PIPELINE_RETRY, /* will be tried again: the same */
    PIPELINE_SAVED, /* tokens so far are stored */
    PIPELINE_ENDED,
};

/* Where the run stands. total counts every job of the queue, done and failed those of earlier runs
 * too. */
struct pipeline_state {
    enum pipeline_event event;
    int64_t total, done, failed, cancelled;
    size_t running, ready;                     /* in the engine; claimed and not yet in it */
    uint64_t tokens, rows, bytes_read, sweeps; /* of this run; rows: prompts too */
    struct ahead_waits waits;
    double seconds;
    double eta_s; /* below 0: not known */
    const struct queue_job *job;
    enum status code;
    const char *message;
};

enum pipeline_end {
    PIPELINE_FINISHED, /* nothing is left */
    PIPELINE_LIMIT,    /* max_jobs or deadline */
    PIPELINE_HALTED,   /* too many failures */
    PIPELINE_STOPPED,  /* asked to */
};

struct pipeline_report {
    enum pipeline_end end;
    uint64_t done, failed, retried, lost; /* of this run */
    uint64_t prompt_tokens, completion_tokens;
    int64_t unfinished; /* in the queue */
    double seconds;
    struct ahead_waits waits;
    struct engine_stats engine;
};

struct pipeline_opts {
    struct db *db;
    struct queue_worker worker; /* lease_ms 0: a quarter of an hour */
    bool alone; /* holds the exclusive lock: what is running belongs to dead processes */
    struct pipeline_engine engine;
    size_t sequences, prefill_rows; /* that the engine takes at a time, at most in a sweep */
    double sweep_s, idle_s; /* expected: a sweep's seconds, and those it waits for reads; or 0 */
    struct prepare_opts prepare;
    size_t passed;           /* a job lets about so many others past; 0: turn.h, order.h */
    uint64_t retries;        /* of faults that may pass */
    double retry_s;          /* wait before the first one, four times longer each time */
    double checkpoint_s;     /* store tokens this often */
    double timeout_s;        /* of jobs that name none; 0: none */
    uint64_t max_jobs;       /* 0: no limit */
    int64_t deadline;        /* seconds since 1970; 0: none */
    uint64_t halt_fails;     /* 0: never */
    double halt_percent;     /* of the jobs that ended in this run, once 10 did; 0: never */
    bool patient;            /* wait for all that is being prepared: counts that repeat exactly */
    int64_t run_id;          /* row of runs to keep up to date */
    int (*stop)(void *user); /* not 0: end soon, keep all; or NULL */
    void (*event)(void *user, const struct pipeline_state *s); /* or NULL */
    void *user;
};

/* *out is filled whatever is returned. */
enum status pipeline_run(const struct pipeline_opts *o, struct pipeline_report *out, struct err *e);

#endif
