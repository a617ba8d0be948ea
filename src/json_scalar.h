/* The part of the acceptor that knows single values: strings, numbers, words. */
#ifndef NS_JSON_SCALAR_H
#define NS_JSON_SCALAR_H

#include "src/json_nodes.h"

/* What a value waits for. Up to AT_AFTER, but for AT_KEY, white space may stand there. */
enum json_step {
    AT_START, /* of any value */
    /* object and array: first key or item, within a key, its colon, key after a comma, comma or end
     */
    AT_FIRST,
    AT_KEY,
    AT_COLON,
    AT_NEXT,
    AT_AFTER,
    /* string: text, after a backslash, digits of an escape, those of a low surrogate */
    AT_BODY,
    AT_ESCAPE,
    AT_HEX,
    AT_LOW1,
    AT_LOW2,
    AT_LOW_HEX,
    /* number: behind the sign, a zero, digits, the point, digits, e, its sign, digits */
    AT_SIGN,
    AT_ZERO,
    AT_INT,
    AT_DOT,
    AT_FRACTION,
    AT_EXP,
    AT_EXP_SIGN,
    AT_EXP_DIGITS,
    AT_WORD, /* within a literal */
};

/* What became of the byte. ENDED: the value was complete before it; OPENED: it belongs to the value
 * just opened. */
enum json_fate { REFUSED, TAKEN, DONE, ENDED, OPENED };

struct json_cursor {
    const struct json_grammar *g;
    const struct json_node_rule *node;
    struct json_frame *f; /* the innermost */
    struct json_thread *t;
};

/* A byte for a value under way, whose frame is the innermost. */
enum json_fate json_string_byte(const struct json_cursor *c, unsigned char b);
enum json_fate json_number_byte(const struct json_cursor *c, unsigned char b);
enum json_fate json_integer_byte(const struct json_cursor *c, unsigned char b);
enum json_fate json_literal_byte(const struct json_cursor *c, unsigned char b);
/* The number, integer or literal is complete as it stands. */
bool json_scalar_can_end(const struct json_grammar *g, const struct json_frame *f);

/* A byte of text without escapes: not a quote, a backslash or a control character. */
enum json_fate json_plain_byte(struct json_frame *f, unsigned char b);
/* Keeps of the words [f->first, f->last) of the node those that have b next. */
void json_word_narrow(const struct json_cursor *c, unsigned char b);
/* The first of those left ends here. */
bool json_word_is_whole(const struct json_grammar *g, const struct json_frame *f);

#endif
