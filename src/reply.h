/* From output tokens to the answer: channels (reasoning, response), stop strings, limits, whole
 * UTF-8.
 *
 * A pure function of the tokens pushed: a resumed job pushes the stored ones again and stands where
 * it stood. The model's markup is recognised by token id, never by text (kimi-k3 5.7).
 *
 * Where text goes. A marker is <|open|> or <|close|>, a name with attributes, <|sep|>. Only the
 * names message, think, response and tools matter; markers with others are dropped and change
 * nothing. Text goes to the innermost open element: think is reasoning, response is content, what
 * is in tools is dropped, and so is text directly in the message; but when no response ever opens,
 * that text is the content. A close ends the innermost element of its name and those inside it; one
 * that closes nothing open is ignored. Other specials are text, by their spelling. Markers without
 * <|sep|>: cut short by another marker or the end, one with a whole known name counts, one with a
 * beginning of such a name is dropped, the name of any other is text; so is one longer than
 * REPLY_NAME_BYTES. */
#ifndef NS_REPLY_H
#define NS_REPLY_H

#include "src/mem.h"
#include "src/tok.h"

#define REPLY_NAME_BYTES 256
#define REPLY_DEPTH                                                                                \
    16 /* elements open at once; what is opened beyond takes the place of the last */

/* A reply loops when its last tokens are one run of up to REPLY_PERIOD tokens over and over: the
 * same as the token one period before REPLY_REPEATS times the period in a row, and at least
 * REPLY_MIN_REPEAT times. So 256 zeros, or eight equal lines of 64 tokens, are no loop yet. */
#define REPLY_PERIOD     64
#define REPLY_REPEATS    8
#define REPLY_MIN_REPEAT 256

enum reply_state { REPLY_OPEN, REPLY_STOP, REPLY_LENGTH, REPLY_REPETITION };

/* Where the next text token would go; REPLY_MARKUP: inside a marker. */
enum reply_channel { REPLY_NOWHERE, REPLY_REASONING, REPLY_CONTENT, REPLY_MARKUP };

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

/* Copies what it needs of o, except tok. E_INVALID_REQUEST: an empty stop string, max_tokens 0. */
enum status reply_open(struct reply **out, const struct reply_opts *o, struct err *e);
void reply_close(struct reply *r);
/* One more output token. After anything but REPLY_OPEN no more may be pushed. When several ends
 * fall together: stop id, stop string, repetition, length. An id outside the vocabulary is
 * E_INTERNAL. */
enum status reply_push(struct reply *r, int32_t id, enum reply_state *state, struct err *e);
size_t reply_tokens(const struct reply *r);
enum reply_channel reply_channel(const struct reply *r);
/* The text so far: valid UTF-8, bad bytes as U+FFFD; an incomplete last character is held back
 * while the state is REPLY_OPEN and becomes U+FFFD at the end. Live until the next push. */
const char *reply_content(struct reply *r, size_t *len);
const char *reply_reasoning(struct reply *r, size_t *len);
const char *
reply_finish_reason(const struct reply *r); /* "stop", "length", "repetition", or NULL while open */

#endif
