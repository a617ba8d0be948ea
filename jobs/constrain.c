/* A grammar's state moved on by the tokens of the response, and masks made of it. */
#include "jobs/constrain.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FORCED_BYTES 64 /* of a draft */

struct constrain_vocab {
    struct json_mask *mask;
    uint32_t *bits;       /* [(vocab + 31) / 32] */
    pthread_mutex_t lock; /* guards both */
};

struct constrain {
    struct constrain_vocab *vocab;
    const struct tok *tok;
    int32_t close;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    struct json_grammar *grammar;
    struct json_state state;
    struct reply *where; /* only to know the channel */
    bool lost;           /* text that the grammar did not allow, or a fault: no more masks */
    enum status fault;
};

enum status constrain_vocab_open(struct constrain_vocab **out, const struct tok *t, struct err *e)
{
    struct constrain_vocab *v = *out = calloc(1, sizeof *v);
    if (!v) return err_set(e, E_NOMEM, "masks: no memory");
    pthread_mutex_init(&v->lock, NULL);
    v->bits = calloc(tok_vocab(t) / 32 + 1, sizeof *v->bits);
    enum status rc =
        v->bits ? json_mask_open(&v->mask, t, e) : err_set(e, E_NOMEM, "masks: no memory");
    if (rc) {
        constrain_vocab_close(v);
        *out = NULL;
    }
    return rc;
}

void constrain_vocab_close(struct constrain_vocab *v)
{
    if (!v) return;
    json_mask_close(v->mask);
    pthread_mutex_destroy(&v->lock);
    free(v->bits);
    free(v);
}

enum status constrain_open(struct constrain **out, const struct constrain_opts *o, struct err *e)
{
    *out = NULL;
    const struct job *j = o->job;
    if (j->format == CHAT_TEXT) return OK;
    struct constrain *c = calloc(1, sizeof *c);
    if (!c) return err_set(e, E_NOMEM, "constraint: no memory");
    c->vocab = o->vocab;
    c->tok = o->tok;
    c->close = tok_special(o->tok, "<|close|>");
    c->stop_ids = o->stop_ids;
    c->n_stop_ids = o->n_stop_ids;
    const char *schema = j->format == CHAT_JSON_SCHEMA ? j->schema : NULL;
    struct reply_opts r = {
        .tok = o->tok, .thinking = j->settings.effort != NULL, .max_tokens = SIZE_MAX};
    enum status rc = json_grammar_open(&c->grammar, schema, schema ? strlen(schema) : 0, e);
    if (!rc) rc = reply_open(&c->where, &r, e);
    if (rc) {
        constrain_close(c);
        return rc;
    }
    json_state_init(&c->state, c->grammar);
    *out = c;
    return OK;
}

void constrain_close(struct constrain *c)
{
    if (!c) return;
    json_grammar_close(c->grammar);
    reply_close(c->where);
    free(c);
}

void constrain_push(struct constrain *c, int32_t id)
{
    if (c->lost) return;
    size_t n;
    const char *bytes = tok_bytes(c->tok, id, &n);
    enum reply_state state;
    if (reply_channel(c->where) == REPLY_CONTENT && !tok_is_special(c->tok, id) &&
        !json_state_push(&c->state, bytes, n))
        c->lost = true;
    c->fault = reply_push(c->where, id, &state, NULL);
    if (c->fault || state != REPLY_OPEN) c->lost = true;
}

enum status constrain_fault(const struct constrain *c, struct err *e)
{
    return c && c->fault ? err_set(e, c->fault, "no memory to keep an answer to its form") : OK;
}

static bool ends(const struct constrain *c, int32_t id)
{
    for (size_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] == id) return true;
    return id == c->close;
}

static void mask(void *user, float *logits, size_t vocab)
{
    struct constrain *c = user;
    if (c->lost || reply_channel(c->where) != REPLY_CONTENT) return;
    struct constrain_vocab *v = c->vocab;
    bool may_end = json_state_can_end(&c->state);
    pthread_mutex_lock(&v->lock);
    c->fault = json_mask_fill(v->mask, &c->state, v->bits, NULL);
    if (!c->fault)
        for (size_t i = 0; i < vocab; i++) {
            bool allowed = i < tok_vocab(c->tok) && v->bits[i / 32] >> (i % 32) & 1;
            if (!allowed && !(may_end && ends(c, (int32_t)i))) logits[i] = -INFINITY;
        }
    else
        c->lost = true;
    pthread_mutex_unlock(&v->lock);
}

static size_t forced(void *user, int32_t *ids, size_t max)
{
    struct constrain *c = user;
    char bytes[FORCED_BYTES];
    struct ids found = {0};
    struct err why;
    if (c->lost || reply_channel(c->where) != REPLY_CONTENT) return 0;
    size_t n = json_state_forced(&c->state, bytes, sizeof bytes);
    /* Cut within a character: its bytes are for another time. */
    while (n && ((unsigned char)bytes[n - 1] & 0x80)) n--;
    if (n && tok_encode(c->tok, bytes, n, false, &found, &why)) found.n = 0;
    if (found.n > max) found.n = max;
    if (found.n) memcpy(ids, found.at, found.n * sizeof *ids);
    n = found.n;
    ids_free(&found);
    return n;
}

static void push(void *user, int32_t id)
{
    constrain_push(user, id);
}

struct constraint constrain_face(struct constrain *c)
{
    return c ? (struct constraint){c, mask, push, forced} : (struct constraint){0};
}
