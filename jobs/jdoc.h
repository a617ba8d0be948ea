/* A strict JSON reader that keeps positions, and the writing of strings.
 *
 * cJSON accepts raw control characters, bad UTF-8 and lone surrogates, cuts strings at an escaped
 * NUL and rounds integers over 2^53; and its tree copies every string, megabytes of base64 among
 * them. This one refuses all that, with the byte where it went wrong, and its tree is a table of
 * byte ranges of the text: nothing is copied, numbers and metadata keep their spelling, an inline
 * image can be found again in the file. Duplicate keys are refused in every object. */
#ifndef NS_JDOC_H
#define NS_JDOC_H

#include "src/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JDOC_MAX_DEPTH  64
#define JDOC_MAX_VALUES (1u << 20) /* keys counted too: 24 MiB of table */
#define JDOC_MAX_BYTES  (1ull << 31)

enum jdoc_type { JDOC_NULL, JDOC_BOOL, JDOC_NUMBER, JDOC_STRING, JDOC_ARRAY, JDOC_OBJECT };

struct jdoc_value {
    uint32_t at, len; /* bytes of the text; a string's without its quotes */
    uint32_t next;    /* number of the next element, or next key; 0: none */
    uint32_t count;   /* elements of an array, members of an object */
    enum jdoc_type type;
    bool escaped; /* a string with at least one escape */
};

/* Value 0 is the whole. The first element of an array a is a + 1; the first key of an object o is
 * o + 1, and the value of a key k is k + 1. */
struct jdoc {
    const char *text; /* borrowed */
    struct jdoc_value *values;
    uint32_t n, cap;
    unsigned depth; /* levels accepted; 0: JDOC_MAX_DEPTH */
};

/* E_INVALID_JSON with the 1-based byte; E_NOMEM. End with jdoc_free either way. A parsed struct may
 * be parsed into again; it keeps its table. The first call wants it zeroed. */
enum status jdoc_parse(struct jdoc *j, const char *text, size_t len, struct err *e);
void jdoc_free(struct jdoc *j);

/* "null", "true or false", "a number", ... */
const char *jdoc_type_name(enum jdoc_type t);

/* First element or key of v; 0: none. The next is values[i].next. */
uint32_t jdoc_first(const struct jdoc *j, uint32_t v);
/* The value of the member whose key is `key`; 0: none. */
uint32_t jdoc_member(const struct jdoc *j, uint32_t object, const char *key);
/* v is a string that reads `text`. */
bool jdoc_is(const struct jdoc *j, uint32_t v, const char *text);
bool jdoc_true(const struct jdoc *j, uint32_t v);
/* Writes a string's characters, at most its len bytes and a NUL; returns how many. */
size_t jdoc_unescape(const struct jdoc *j, uint32_t v, char *out);
/* Exact: false unless the number is written as an integer and fits. */
bool jdoc_u64(const struct jdoc *j, uint32_t v, uint64_t *out);
bool jdoc_i64(const struct jdoc *j, uint32_t v, int64_t *out);
/* Nearest double; false unless it is a finite number. */
bool jdoc_real(const struct jdoc *j, uint32_t v, double *out);

/* Append a quoted string; text must be valid UTF-8. */
enum status jdoc_quote(struct buf *out, const char *text, size_t len, struct err *e);
/* Append the shortest spelling that reads back as x; x must be finite. */
enum status jdoc_number(struct buf *out, double x, struct err *e);

/* Bytes of the UTF-8 character at p, 1..4; 0 when it is none (surrogates and overlong forms too).
 */
unsigned jdoc_utf8(const char *p, size_t len);
bool jdoc_is_utf8(const char *p, size_t len);

#endif
