/* One running sequence: what is known of it, what it may still give, and its state. */
#ifndef NS_SEQUENCE_H
#define NS_SEQUENCE_H

#include "src/prefix.h"
#include "src/sample.h"
#include "src/spec.h"
#include "src/state.h"

struct engine_image {
    size_t first, n; /* rows [first, first + n) of the prompt */
    const float
        *rows; /* [n][hidden]; must live until the sequence gives its first token or is removed */
};

/* Limits what a sequence may say. mask sets logits [vocab] of what is not allowed next to
 * -INFINITY; push tells a token that stands. Called in turns, on any thread, one sequence at a
 * time; a pure function of the tokens pushed. */
struct constraint {
    void *user;
    void (*mask)(void *user, float *logits, size_t vocab);
    void (*push)(void *user, int32_t id);
    /* Up to max tokens that probably follow, since the form leaves little else: a draft. */
    size_t (*forced)(void *user, int32_t *ids, size_t max);
};

/* What the caller of engine_add describes. */
struct engine_sequence {
    uint64_t tag;       /* the caller's name for it, unique among those running */
    const int32_t *ids; /* prompt; copied */
    size_t n_ids;
    const struct engine_image *images; /* copied, the rows themselves not */
    size_t n_images;
    const int32_t *done; /* tokens it gave before an interruption; copied */
    size_t n_done;
    size_t max_tokens; /* room is reserved for n_ids + max_tokens rows */
    struct sample_params sample;
    struct constraint constraint; /* mask NULL: none. It has been pushed the tokens in done. */
    unsigned kind;                /* affinity.h */
    /* Sharing with other prompts, optional. row_hash [n_ids]: what each row is (token id, or a
     * content hash for a row of an image); copied. cuts: lengths at which others part from this
     * prompt, ascending, each in 1..n_ids - 1: the state there is kept for them. At most
     * SEQUENCE_CUTS. */
    const uint64_t *row_hash;
    const size_t *cuts;
    size_t n_cuts;
};

#define SEQUENCE_CUTS 8

struct sequence {
    uint64_t tag;
    int32_t *ids;       /* prompt, then outputs: room for n_prompt + max_tokens */
    size_t n_prompt, n; /* known ids */
    size_t max_tokens;
    struct engine_image *images;
    size_t n_images;
    struct sample_params sample;
    struct constraint constraint;
    unsigned kind;
    uint64_t *row_hash; /* NULL: shares nothing */
    struct cut {
        size_t at;
        struct prefix_key key;
    } * cuts;
    size_t n_cuts, next_cut; /* cuts before next_cut are passed */
    bool started;            /* a shared beginning was looked for */
    struct state state;
    /* Of the present sweep: rows known after it, the first cut on the way, the depth of the span
     * after that and of the next one, and whose state the next one builds upon. */
    size_t planned, first_cut;
    unsigned cut_depth, depth;
    const struct state *from;
    struct spec_draft draft; /* of the present sweep */
};

/* E_BUDGET when the state has no room at present. Sizes were checked by the caller. */
enum status sequence_open(struct sequence **out, const struct engine_sequence *from,
                          struct mem *mem, const struct config *c, struct err *e);
void sequence_close(struct sequence *s, struct mem *mem);

/* A sweep begins. */
void sequence_begin(struct sequence *s);
/* Builds upon the longest beginning that s shares with the rows that `other`, begun and gathered
 * before it, has in this sweep, if that is longer than `least` and what s has. */
void sequence_branch(struct sequence *s, const struct sequence *other, size_t least);
/* Rows known and not yet computed. */
static inline size_t sequence_todo(const struct sequence *s)
{
    return s->n - s->state.length;
}
/* The embedding of an image's row, or NULL where the row is a token. */
const float *sequence_image_row(const struct sequence *s, size_t at, size_t hidden);
/* Is `other`, not yet that far, going to keep a beginning that s shares and that is worth a sweep's
 * wait to one that has `kept` rows of it already? */
bool sequence_waits_for(const struct sequence *s, const struct sequence *other, size_t kept);

#endif
