/* Opening and closing sequences, and what they share. */
#include "src/sequence.h"

#include <stdlib.h>
#include <string.h>

/* Rows that ride along in a sweep are cheap, another sweep with a prompt in it is not. */
#define WORTH_ROWS 64

static void *copy(const void *from, size_t bytes, size_t room)
{
    void *p = malloc(room ? room : 1);
    if (p && bytes) memcpy(p, from, bytes);
    return p;
}

/* Names the cuts by the hash of the rows before them. */
static void name_cuts(struct sequence *s, const struct engine_sequence *from)
{
    struct prefix_key key = prefix_empty();
    for (size_t i = 0; i < s->n_prompt && s->n_cuts < from->n_cuts; i++) {
        key = prefix_step(key, s->row_hash[i]);
        if (from->cuts[s->n_cuts] == i + 1) s->cuts[s->n_cuts++] = (struct cut){i + 1, key};
    }
}

enum status sequence_open(struct sequence **out, const struct engine_sequence *from,
                          struct mem *mem, const struct config *c, struct err *e)
{
    *out = NULL;
    struct sequence *s = calloc(1, sizeof *s);
    if (!s) return err_set(e, E_NOMEM, "sequence: no memory");
    s->tag = from->tag;
    s->n_prompt = from->n_ids;
    s->n = from->n_ids + from->n_done;
    s->max_tokens = from->max_tokens;
    s->sample = from->sample;
    s->constraint = from->constraint;
    s->kind = from->kind;
    s->n_images = from->n_images;
    size_t room = from->n_ids + from->max_tokens;
    s->ids = copy(from->ids, from->n_ids * sizeof *from->ids, room * sizeof *from->ids);
    s->images = copy(from->images, from->n_images * sizeof *from->images,
                     from->n_images * sizeof *from->images);
    s->cuts = calloc(from->n_cuts + 1, sizeof *s->cuts);
    if (from->row_hash)
        s->row_hash =
            copy(from->row_hash, s->n_prompt * sizeof(uint64_t), s->n_prompt * sizeof(uint64_t));
    enum status rc = OK;
    if (!s->ids || !s->images || !s->cuts || (from->row_hash && !s->row_hash))
        rc = err_set(e, E_NOMEM, "sequence: no memory");
    else
        rc = state_init(&s->state, mem, c, room, e);
    if (rc) {
        sequence_close(s, mem);
        return rc;
    }
    if (from->n_done) memcpy(s->ids + from->n_ids, from->done, from->n_done * sizeof *from->done);
    if (s->row_hash) name_cuts(s, from);
    *out = s;
    return OK;
}

void sequence_close(struct sequence *s, struct mem *mem)
{
    if (!s) return;
    state_free(&s->state, mem);
    free(s->ids);
    free(s->images);
    free(s->cuts);
    free(s->row_hash);
    free(s);
}

const float *sequence_image_row(const struct sequence *s, size_t at, size_t hidden)
{
    for (size_t i = 0; i < s->n_images; i++) {
        const struct engine_image *m = &s->images[i];
        if (at >= m->first && at < m->first + m->n) return m->rows + (at - m->first) * hidden;
    }
    return NULL;
}

void sequence_begin(struct sequence *s)
{
    s->planned = s->state.length;
    s->first_cut = s->next_cut;
    s->cut_depth = 1;
    s->depth = 0;
    s->from = NULL;
    s->draft.n = 0;
}

void sequence_branch(struct sequence *s, const struct sequence *other, size_t least)
{
    if (!s->row_hash || !other->row_hash) return;
    for (size_t i = other->next_cut; i-- > other->first_cut;) {
        size_t at = other->cuts[i].at;
        if (at <= least || at <= s->planned) return;
        if (at >= s->n_prompt || memcmp(s->row_hash, other->row_hash, at * sizeof *s->row_hash))
            continue;
        s->planned = at;
        s->depth = s->cut_depth = other->cut_depth + (unsigned)(i - other->first_cut);
        s->cut_depth++;
        s->from = &other->state;
        return;
    }
}

bool sequence_waits_for(const struct sequence *s, const struct sequence *other, size_t kept)
{
    if (!s->row_hash || !other->row_hash || other->next_cut == other->n_cuts) return false;
    size_t at = other->cuts[other->next_cut].at;
    if (at >= s->n_prompt || at < kept + WORTH_ROWS) return false;
    return !memcmp(s->row_hash, other->row_hash, at * sizeof *s->row_hash);
}
