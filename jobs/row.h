/* One item of an input as it goes into the queue: a whole job with its pictures found and hashed,
 * or what is wrong with it. Making a row reads files and writes nothing; placing it is SQL alone,
 * so that no transaction is open while pictures are read. */
#ifndef NS_ROW_H
#define NS_ROW_H

#include "jobs/db.h"
#include "jobs/image_ref.h"
#include "jobs/input.h"
#include "vision/vision.h"

/* What shapes jobs beside their lines. */
struct row_opts {
    struct mem *mem;
    /* For what the line does not say; then the built-in defaults. Only what answers depend on: a
     * time limit for all jobs is the run's business. */
    struct job_settings settings;
    struct image_ref_opts images;
    /* vision_probe and what it needs, to check the pictures' headers as well; or NULL. */
    enum status (*probe)(const struct vision_processor *p, const struct vision_limits *l,
                         const void *bytes, size_t len, struct picture_info *out, struct err *e);
    const struct vision_processor *processor;
    const struct vision_limits *limits;
};

struct row_image {
    char *ref, *path;
    uint64_t bytes;
    int64_t mtime_ns; /* of its file; 0: inline */
    char sha256[JOB_SHA_CHARS];
    struct picture_info info; /* width 0: not known */
};

struct row {
    uint64_t line, offset, len;
    char *custom_id;  /* NULL: none legible */
    struct buf spec;  /* empty: a bad line */
    enum status code; /* OK, or why the job failed before it began */
    char message[ERR_TEXT_BYTES];
    char params_sha256[JOB_SHA_CHARS];
    uint64_t text_bytes, max_tokens;
    int64_t priority, place; /* place.h */
    struct row_image *images;
    size_t n_images;
};

/* A job's fault becomes the row's; an error returned is the machine's. Fills the item's job with
 * defaults. End with row_free. */
enum status row_make(struct row *r, const struct row_opts *o, const struct input_item *item,
                     struct err *e);
void row_free(struct row *r);
/* Bytes a row holds in memory, about. */
size_t row_bytes(const struct row *r);

/* Where a row goes. */
struct row_place {
    int64_t input_id;
    const char *path; /* of the input, for messages */
    bool by_id;       /* pictures: known by id, the line is only the order */
    bool skip_duplicates;
    enum row_changed { ROW_ERROR, ROW_RERUN, ROW_KEEP } on_changed;
};
enum row_outcome { ROW_ADDED, ROW_BAD, ROW_DUPLICATE, ROW_KNOWN, ROW_REPLACED, ROW_OUTCOMES };

/* Within the caller's transaction. For a duplicate r->code and r->message are set. E_INPUT: by_id,
 * the job is known with another spec, and on_changed is ROW_ERROR. */
enum status row_store(struct db *db, struct row *r, const struct row_place *p,
                      enum row_outcome *outcome, struct err *e);

/* The seed of a job that names none: of the run's base seed and the job's id, so that the same
 * prompt under two ids is drawn twice. Below 2^53, for readers that keep numbers as doubles. */
uint64_t row_seed(uint64_t base, const char *custom_id);

#endif
