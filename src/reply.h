/* From output tokens to the answer: channels (reasoning, response), stop strings, limits, whole
 * UTF-8.
 *
 * A pure function of the tokens pushed: a resumed job pushes the stored ones again and stands where
 * it stood. The model's markup is recognised by token id, never by text (kimi-k3 5.7). */
#ifndef NS_REPLY_H
#define NS_REPLY_H

#include "src/mem.h"
#include "src/tok.h"

enum reply_state { REPLY_OPEN, REPLY_STOP, REPLY_LENGTH, REPLY_REPETITION };

struct reply_opts {
    const struct tok *tok;
    bool thinking; /* the prompt ended with an open think element; else with an open response */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    const char *const *stops; /* stop strings: the content ends before the first one found, also
                                 across token borders */
    size_t n_stops;
    size_t max_tokens;    /* counts every token, markup and stop id too */
    bool stop_repetition; /* end a reply that loops */
};

struct reply;

/* Copies what it needs of o, except tok. */
enum status reply_open(struct reply **out, const struct reply_opts *o, struct err *e);
void reply_close(struct reply *r);
/* One more output token. After anything but REPLY_OPEN no more may be pushed. */
enum status reply_push(struct reply *r, int32_t id, enum reply_state *state, struct err *e);
size_t reply_tokens(const struct reply *r);
/* The text so far: valid UTF-8, bad bytes as U+FFFD; an incomplete last character is held back
 * while the state is REPLY_OPEN and becomes U+FFFD at the end. Live until the next push. */
const char *reply_content(struct reply *r, size_t *len);
const char *reply_reasoning(struct reply *r, size_t *len);
const char *
reply_finish_reason(const struct reply *r); /* "stop", "length", "repetition", or NULL while open */

#endif
