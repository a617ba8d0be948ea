/* Which bytes may come next, when an answer must be JSON: a schema compiled into an acceptor.
 *
 * What is accepted is always a valid document, but not every valid document is: keys, enum and
 * const values are spelled as json_write spells them; no key of additional properties has an
 * escape; white space runs, digits and nesting are bounded; no \u0000; integers without fraction,
 * exponent or -0. From every state that is reached the document can be finished.
 *
 * Understood: type (also a list), properties, required, additionalProperties, items, minItems,
 * maxItems, minLength, maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum (the four on
 * integers, as integers), enum, const, anyOf, allOf of one, $ref within the document. Annotations
 * are ignored, `format` among them. Without a type, the keywords tell it. */
#ifndef NS_JSON_GRAMMAR_H
#define NS_JSON_GRAMMAR_H

#include "src/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_GRAMMAR_DEPTH      32 /* values open at once */
#define JSON_GRAMMAR_THREADS    32 /* readings of the text so far; more than these are forgotten */
#define JSON_GRAMMAR_SPACE      20 /* bytes of white space in a row: a model may get lost in more */
#define JSON_GRAMMAR_DIGITS     18 /* of an integer, and of a number's fraction; exponents: 2 */
#define JSON_GRAMMAR_PROPERTIES 64 /* of one object */
#define JSON_GRAMMAR_LITERALS   1024 /* of one enum */
#define JSON_GRAMMAR_OPTIONS    32   /* of one anyOf, those in it included */

struct json_grammar;

/* schema: JSON text of len bytes; NULL: any object. E_INVALID_JSON; E_UNSUPPORTED_FIELD with the
 * JSON pointer of what is outside the subset; E_INVALID_REQUEST with that of what makes no sense or
 * can never be satisfied. */
enum status json_grammar_open(struct json_grammar **out, const char *schema, size_t len,
                              struct err *e);
void json_grammar_close(struct json_grammar *g);

/* One value under way. */
struct json_frame {
    uint16_t node;
    uint8_t step, space;     /* space: bytes in a row; digits of an escape or exponent */
    uint8_t utf8, low, high; /* bytes that the character still needs, bounds of the next one */
    uint8_t flag;            /* a key that may be an additional one; a negative integer */
    uint16_t first, last;    /* the words that the bytes so far may become */
    uint32_t pos;            /* bytes of the word; value of the escape */
    uint32_t n;              /* characters, items or digits so far */
    uint64_t bits;           /* properties seen; absolute value */
    uint32_t child, unused;  /* node of the value that comes next */
};

struct json_thread {
    uint32_t depth; /* 0: the document is complete */
    struct json_frame frames[JSON_GRAMMAR_DEPTH];
};

/* Where a document stands. A value: copy it with json_state_copy, which touches what is used only.
 */
struct json_state {
    const struct json_grammar *grammar;
    uint32_t n; /* threads; at least 1 */
    struct json_thread threads[JSON_GRAMMAR_THREADS];
};

void json_state_init(struct json_state *s, const struct json_grammar *g);
void json_state_copy(struct json_state *to, const struct json_state *from);
/* Goes on by n bytes. False: no valid document continues so; s is then as it was. */
bool json_state_push(struct json_state *s, const char *bytes, size_t n);
/* The document may end here; it must, nothing can follow. */
bool json_state_can_end(const struct json_state *s);
bool json_state_must_end(const struct json_state *s);
/* Characters of plain text (no quote, backslash or control character) that may follow whatever they
 * are: within a string, what its length allows; UINT32_MAX: any number. */
uint32_t json_state_plain(const struct json_state *s);
/* Writes the bytes that must follow, if white space is left out: as many as are certain, at most
 * cap. A draft for the model to confirm. */
size_t json_state_forced(const struct json_state *s, char *out, size_t cap);

#endif
