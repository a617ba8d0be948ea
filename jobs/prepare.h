/* From a claimed job to one that the engine can take: its pictures read and encoded, its
 * conversation rendered and tokenised. No SQL here; it runs beside the sweeps on one thread. */
#ifndef NS_PREPARE_H
#define NS_PREPARE_H

#include "jobs/image_ref.h"
#include "jobs/image_store.h"
#include "jobs/queue.h"
#include "jobs/result.h"
#include "jobs/spool.h"
#include "src/config.h"
#include "src/engine.h"
#include "src/prompt.h"
#include "src/tok.h"

/* All borrowed, and read by the preparing thread. */
struct prepare_opts {
    struct mem *mem;
    const struct config *config;
    const struct tok *tok;
    struct constrain_vocab *vocab; /* for jobs that want JSON */
    /* vision_encode and what it works on; encode NULL: the model takes no pictures. */
    enum status (*encode)(struct vision *v, const void *bytes, size_t len,
                          struct picture_info *info, float **rows, struct err *e);
    void (*times)(struct vision *v, struct vision_times *out); /* vision_times; or NULL */
    struct vision *vision;
    struct spool *spool;  /* for pictures of several jobs; or NULL */
    uint64_t image_bytes; /* limit for encoded pictures in memory */
    /* What the plan shared out, and of it for reading and decoding one picture: to tell how much
     * more a larger one needs. 0: not known. */
    uint64_t ram_bytes, picture_bytes;
    struct image_ref_opts images;
    bool keep_changed;      /* take a picture whose bytes are others than at import */
    bool verify_stat;       /* size and time tell whether they are; else the bytes do */
    const char *model_name; /* what a job's `model` may ask for */
};

/* What of prepare_job needs no pictures and no engine; of o: config, tok, model_name. */
/* E_INVALID_REQUEST when a job asks for another model. */
enum status prepare_model(const struct prepare_opts *o, const struct job *j, struct err *e);
/* The prompt of a job whose images have sizes; rows[i]: rows of the i-th. prompt_free it. */
enum status prepare_prompt(const struct prepare_opts *o, const struct job *j, const unsigned *rows,
                           struct prompt *out, struct err *e);

struct constrain_vocab;
struct prepare;

/* A job ready to run, or what is wrong with it. */
struct ready {
    const struct queue_job *from; /* set by the caller */
    struct job job;
    struct prompt prompt;
    uint64_t *row_hash;          /* [prompt.ids.n] for share.h */
    struct engine_image *images; /* [n_images], rows borrowed from the store */
    struct image_rows **rows;    /* [n_images] */
    struct result_image *facts;  /* [n_images]; warnings, path malloc'ed */
    size_t n_images, n_facts;    /* facts are known for the first n_facts */
    struct err err; /* code OK: ready. A job's fault: it fails. Another's: the run ends. */
    bool transient; /* the fault may pass: reading failed, not the picture */
};

enum status prepare_open(struct prepare **out, const struct prepare_opts *o, struct err *e);
void prepare_close(struct prepare *p);
/* Fills r from r->from; r->err tells how it went. End with ready_free. */
void prepare_job(struct prepare *p, struct ready *r);
/* Gives the rows back: the sequence has its first token or is removed. */
void ready_drop_rows(struct prepare *p, struct ready *r);
void ready_free(struct prepare *p, struct ready *r);
/* Seconds on pictures so far. From any thread. */
void prepare_times(const struct prepare *p, struct vision_times *out);
/* Does a job wait for room, until others gave their pictures back? */
bool prepare_full(const struct prepare *p);
/* No more waiting for room: a job that waits ends with E_STOPPED. */
void prepare_stop(struct prepare *p);

#endif
