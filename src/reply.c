/* A small machine over token ids: a stack of open elements, the name of a marker under way, two
 * texts that grow as whole characters, and for each period how long the tokens have repeated. */
#include "src/reply.h"
#include "src/unicode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum element { MESSAGE, THINK, RESPONSE, TOOLS, N_ELEMENTS };
static const char *const element_names[N_ELEMENTS] = {"message", "think", "response", "tools"};

enum marker { TEXT, OPENING, CLOSING };

struct text {
    struct buf clean;
    char pending[4]; /* the beginning of a character */
    size_t n_pending;
};

struct reply {
    const struct tok *tok;
    int32_t open_id, close_id, sep_id;
    int32_t *stop_ids;
    struct buf *stops;
    size_t n_stop_ids, n_stops, longest_stop;
    size_t max_tokens, n_tokens;
    bool stop_repetition;

    enum reply_state state;
    enum marker marker;
    struct buf name; /* of the marker under way */
    uint8_t stack[REPLY_DEPTH];
    size_t depth;
    bool response_seen;
    struct text content, reasoning;
    int32_t last[REPLY_PERIOD]; /* ring of the last tokens */
    uint32_t
        repeats[REPLY_PERIOD + 1]; /* [period] tokens in a row equal to the one a period before */
};

static enum status copy_opts(struct reply *r, const struct reply_opts *o, struct err *e)
{
    r->stop_ids = calloc(o->n_stop_ids + 1, sizeof *r->stop_ids);
    r->stops = calloc(o->n_stops + 1, sizeof *r->stops);
    if (!r->stop_ids || !r->stops) return err_set(e, E_NOMEM, "reply: no memory");
    for (size_t i = 0; i < o->n_stop_ids; i++) r->stop_ids[r->n_stop_ids++] = o->stop_ids[i];
    for (size_t i = 0; i < o->n_stops; i++) {
        size_t len = strlen(o->stops[i]);
        if (!len) return err_set(e, E_INVALID_REQUEST, "stop: an empty string");
        enum status rc = buf_add(&r->stops[r->n_stops++], o->stops[i], len, e);
        if (rc) return rc;
        if (len > r->longest_stop) r->longest_stop = len;
    }
    return OK;
}

enum status reply_open(struct reply **out, const struct reply_opts *o, struct err *e)
{
    *out = NULL;
    if (!o->max_tokens) return err_set(e, E_INVALID_REQUEST, "max_tokens: at least 1 expected");
    struct reply *r = calloc(1, sizeof *r);
    if (!r) return err_set(e, E_NOMEM, "reply: no memory");
    r->tok = o->tok;
    r->open_id = tok_special(o->tok, "<|open|>");
    r->close_id = tok_special(o->tok, "<|close|>");
    r->sep_id = tok_special(o->tok, "<|sep|>");
    r->max_tokens = o->max_tokens;
    r->stop_repetition = o->stop_repetition;
    r->stack[0] = MESSAGE;
    r->stack[1] = o->thinking ? THINK : RESPONSE;
    r->depth = 2;
    r->response_seen = !o->thinking;
    enum status rc = copy_opts(r, o, e);
    if (rc)
        reply_close(r);
    else
        *out = r;
    return rc;
}

void reply_close(struct reply *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_stops; i++) buf_free(&r->stops[i]);
    free(r->stops);
    free(r->stop_ids);
    buf_free(&r->name);
    buf_free(&r->content.clean);
    buf_free(&r->reasoning.clean);
    free(r);
}

static const char replacement[] = "\xEF\xBF\xBD";

static enum status text_add(struct text *t, const char *s, size_t len, struct err *e)
{
    enum status rc = OK;
    for (size_t i = 0; i < len && !rc; i++) {
        t->pending[t->n_pending++] = s[i];
        while (t->n_pending && !rc) {
            uint32_t cp;
            int n = unicode_decode(t->pending, t->n_pending, &cp);
            if (!n) break;
            rc = n > 0 ? buf_add(&t->clean, t->pending, (size_t)n, e)
                       : buf_add(&t->clean, replacement, 3, e);
            size_t used = (size_t)abs(n);
            t->n_pending -= used;
            memmove(t->pending, t->pending + used, t->n_pending);
        }
    }
    return rc;
}

/* No more bytes will complete what is pending. */
static enum status text_end(struct text *t, struct err *e)
{
    if (!t->n_pending) return OK;
    t->n_pending = 0;
    return buf_add(&t->clean, replacement, 3, e);
}

/* The earliest stop string in the content that reaches beyond its first `old` bytes. */
static void find_stop(struct reply *r, size_t old)
{
    struct buf *c = &r->content.clean;
    size_t from = old > r->longest_stop ? old - r->longest_stop : 0, first = c->len;
    for (size_t i = 0; i < r->n_stops; i++) {
        const char *hit = memmem(c->data + from, c->len - from, r->stops[i].data, r->stops[i].len);
        if (hit && (size_t)(hit - c->data) < first) first = (size_t)(hit - c->data);
    }
    if (first == c->len) return;
    c->len = first;
    c->data[first] = 0;
    r->content.n_pending = 0;
    r->state = REPLY_STOP;
}

static enum status add_content(struct reply *r, const char *s, size_t len, struct err *e)
{
    size_t old = r->content.clean.len;
    enum status rc = text_add(&r->content, s, len, e);
    if (!rc && r->n_stops && r->content.clean.len > old) find_stop(r, old);
    return rc;
}

static enum status add_text(struct reply *r, const char *s, size_t len, struct err *e)
{
    switch (r->depth ? r->stack[r->depth - 1] : MESSAGE) {
    case THINK:
        return text_add(&r->reasoning, s, len, e);
    case RESPONSE:
        return add_content(r, s, len, e);
    case MESSAGE:
        return r->response_seen ? OK : text_add(&r->content, s, len, e);
    default:
        return OK;
    }
}

/* The element that a marker's name spells before its attributes; N_ELEMENTS: none. *begun: the name
 * may still become one. */
static enum element name_element(const struct buf *name, bool *begun)
{
    size_t len = 0;
    while (len < name->len && name->data[len] != ' ') len++;
    *begun = false;
    for (int i = 0; i < N_ELEMENTS; i++) {
        if (len == name->len && !strncmp(name->data ? name->data : "", element_names[i], len))
            *begun = true;
        if (strlen(element_names[i]) == len && !memcmp(name->data, element_names[i], len)) return i;
    }
    return N_ELEMENTS;
}

static void apply(struct reply *r, enum marker marker, enum element el)
{
    if (marker == CLOSING) {
        for (size_t i = r->depth; i-- > 0;)
            if (r->stack[i] == el) {
                r->depth = i;
                return;
            }
        return;
    }
    if (r->depth == REPLY_DEPTH) r->depth--;
    r->stack[r->depth++] = (uint8_t)el;
    if (el != RESPONSE || r->response_seen) return;
    r->response_seen = true;
    r->content.clean.len = 0;
}

/* The marker under way ends, with <|sep|> (whole) or without. */
static enum status end_marker(struct reply *r, bool whole, struct err *e)
{
    enum marker marker = r->marker;
    bool begun;
    enum element el = name_element(&r->name, &begun);
    enum status rc = OK;
    r->marker = TEXT;
    if (el != N_ELEMENTS)
        apply(r, marker, el);
    else if (!whole && !begun)
        rc = add_text(r, r->name.data, r->name.len, e);
    r->name.len = 0;
    return rc;
}

static enum status end_texts(struct reply *r, struct err *e)
{
    enum status rc = text_end(&r->content, e);
    return rc ? rc : text_end(&r->reasoning, e);
}

static enum status token(struct reply *r, int32_t id, struct err *e)
{
    size_t len;
    const char *s = tok_bytes(r->tok, id, &len);
    enum status rc = OK;
    bool begins = id == r->open_id || id == r->close_id;
    if (begins || id == r->sep_id) {
        if (r->marker != TEXT) rc = end_marker(r, !begins, e);
        if (!rc) rc = end_texts(r, e);
        if (begins) r->marker = id == r->open_id ? OPENING : CLOSING;
        return rc;
    }
    if (r->marker == TEXT) return add_text(r, s, len, e);
    rc = buf_add(&r->name, s, len, e);
    if (rc || r->name.len <= REPLY_NAME_BYTES) return rc;
    r->marker = TEXT;
    rc = add_text(r, r->name.data, r->name.len, e);
    r->name.len = 0;
    return rc;
}

static bool repeats(struct reply *r, int32_t id)
{
    bool looping = false;
    for (size_t p = 1; p <= REPLY_PERIOD && p <= r->n_tokens; p++) {
        bool same = r->last[(r->n_tokens - p) % REPLY_PERIOD] == id;
        r->repeats[p] = same ? r->repeats[p] + 1 : 0;
        looping |= r->repeats[p] >= REPLY_MIN_REPEAT && r->repeats[p] >= REPLY_REPEATS * p;
    }
    r->last[r->n_tokens % REPLY_PERIOD] = id;
    return looping;
}

enum status reply_push(struct reply *r, int32_t id, enum reply_state *state, struct err *e)
{
    assert(r->state == REPLY_OPEN);
    size_t len;
    tok_bytes(r->tok, id, &len);
    if (!len) return err_set(e, E_INTERNAL, "token %d is not in the vocabulary", id);
    bool looping = repeats(r, id);
    enum status rc = OK;
    r->n_tokens++;
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id) r->state = REPLY_STOP;
    if (r->state == REPLY_OPEN) rc = token(r, id, e);
    if (r->state == REPLY_OPEN && looping && r->stop_repetition) r->state = REPLY_REPETITION;
    if (r->state == REPLY_OPEN && r->n_tokens >= r->max_tokens) r->state = REPLY_LENGTH;
    if (!rc && r->state != REPLY_OPEN && r->marker != TEXT) rc = end_marker(r, false, e);
    if (!rc && r->state != REPLY_OPEN) rc = end_texts(r, e);
    *state = r->state;
    return rc;
}

size_t reply_tokens(const struct reply *r)
{
    return r->n_tokens;
}

enum reply_channel reply_channel(const struct reply *r)
{
    if (r->marker != TEXT) return REPLY_MARKUP;
    if (!r->depth) return REPLY_NOWHERE;
    enum element top = r->stack[r->depth - 1];
    return top == THINK ? REPLY_REASONING : top == RESPONSE ? REPLY_CONTENT : REPLY_NOWHERE;
}

static const char *text_get(const struct text *t, size_t *len)
{
    *len = t->clean.len;
    return t->clean.len ? t->clean.data : "";
}

const char *reply_content(struct reply *r, size_t *len)
{
    return text_get(&r->content, len);
}

const char *reply_reasoning(struct reply *r, size_t *len)
{
    return text_get(&r->reasoning, len);
}

const char *reply_finish_reason(const struct reply *r)
{
    static const char *const names[] = {
        [REPLY_STOP] = "stop", [REPLY_LENGTH] = "length", [REPLY_REPETITION] = "repetition"};
    return names[r->state];
}
