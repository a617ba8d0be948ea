/* An engine without a model: each token is a hash of the prompt's rows and of the position, so a
 * sequence's tokens depend on that sequence alone, as those of the real one. */
#ifndef NS_FAKE_ENGINE_H
#define NS_FAKE_ENGINE_H

#include "jobs/pipeline.h"

struct fake_engine_opts {
    size_t sequences; /* more are E_BUDGET */
    size_t context;   /* more rows are E_PROMPT_TOO_LONG */
    int32_t stop_id;  /* given after `length` tokens, or fewer: 1 + hash of the prompt % length */
    size_t length;
    int32_t first_id, ids;     /* tokens are first_id .. first_id + ids - 1 */
    uint64_t fail_sweep;       /* the n-th sweep fails with E_IO; 0: none */
    size_t broken_max;         /* a sequence that may give so many tokens gives SAMPLE_BROKEN */
    uint64_t broken;           /* ... instead of its third, as often as this */
    void (*on_sweep)(void *u); /* called before each sweep; or NULL */
    void *user;
};
struct pipeline_engine fake_engine_open(const struct fake_engine_opts *o);
void fake_engine_close(struct pipeline_engine *e);
size_t fake_engine_peak(const struct pipeline_engine *e); /* most sequences at a time */

/* Any bytes are a picture: 3 x 2, with two rows of embeddings made from the bytes. Bytes that begin
 * with "bad" are E_IMAGE_UNREADABLE. v may be NULL or an unsigned counting the calls. */
enum status fake_encode(struct vision *v, const void *bytes, size_t len, struct picture_info *info,
                        float **rows, struct err *e);
/* Where fake_encode takes rows from, and their width. */
void fake_vision(struct mem *mem, size_t hidden);

#endif
