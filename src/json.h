/* Small strict JSON documents as a tree: schemas, tokenizer_config.json.
 *
 * RFC 8259 and nothing else; also refused: duplicate keys, lone surrogates, nesting beyond
 * JSON_DEPTH. Members of an object are sorted by key bytes (which is code point order). Numbers
 * stay as they are spelled. */
#ifndef NS_JSON_H
#define NS_JSON_H

#include "src/mem.h"

#include <stdbool.h>

#define JSON_DEPTH 128

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json_node {
    enum json_type type;
    uint32_t child, next;      /* nodes of the document; 0: none */
    uint32_t key, key_len;     /* of an object's member; offset in text */
    uint32_t value, value_len; /* decoded string, or spelling of a number; offset in text */
};

/* nodes[0] is the root. Strings may hold NUL and are not terminated. */
struct json {
    struct json_node *nodes;
    size_t n, cap;
    char *text;
};

/* E_INVALID_JSON names the byte. Bounded by len: at most JSON_MAX_BYTES. */
#define JSON_MAX_BYTES (64u << 20)
enum status json_parse(struct json *out, const char *s, size_t len, struct err *e);
void json_free(struct json *j);

/* Member of an object by key; 0 when there is none or the node is no object. */
uint32_t json_get(const struct json *j, uint32_t object, const char *key);
/* Whether node's string (or number) is exactly s. */
bool json_is(const struct json *j, uint32_t node, const char *s);

/* Appends the node as Python's json.dumps(value, ensure_ascii=False, separators=(",", ":")) writes
 * what json.loads made of it: integers without sign of zero, other numbers as the shortest decimal
 * that gives the same double (some powers of two get a digit more than Python's). E_INVALID_REQUEST
 * for a number beyond the range of doubles. */
enum status json_write(const struct json *j, uint32_t node, struct buf *out, struct err *e);

#endif
