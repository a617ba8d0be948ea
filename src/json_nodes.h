/* A compiled schema, as json_schema.c makes it and json_grammar.c reads it. */
#ifndef NS_JSON_NODES_H
#define NS_JSON_NODES_H

#include "src/json_grammar.h"
#include "src/mem.h"

#define JSON_NODE_NONE UINT16_MAX
#define JSON_UNLIMITED UINT32_MAX
#define JSON_INT_MAX   999999999999999999 /* JSON_GRAMMAR_DIGITS digits */

enum json_kind {
    JSON_K_UNION,
    JSON_K_OBJECT,
    JSON_K_ARRAY,
    JSON_K_STRING,
    JSON_K_NUMBER,
    JSON_K_INTEGER,
    JSON_K_WORDS
};

/* Nodes that every grammar begins with. */
enum {
    JSON_N_ANY,
    JSON_N_OBJECT,
    JSON_N_ARRAY,
    JSON_N_STRING,
    JSON_N_NUMBER,
    JSON_N_WORDS,
    JSON_N_FIXED
};

/* A key without its quotes, or a literal. */
struct json_word {
    uint32_t at, len; /* in grammar.text */
    uint16_t node;    /* a key's value */
};

struct json_node_rule {
    uint8_t kind;
    uint8_t
        min_depth; /* frames that the smallest value needs; over JSON_GRAMMAR_DEPTH: none exists */
    uint16_t next; /* array: items; object: additional properties; or JSON_NODE_NONE */
    uint32_t first, count; /* object, words: words, sorted by bytes; union: options */
    uint32_t min, max;     /* array: items; string: characters */
    int64_t low, high;     /* integer */
    uint64_t required;     /* object: bit i for word first + i */
};

struct json_grammar {
    struct json_node_rule *nodes;
    size_t n_nodes, cap_nodes;
    struct json_word *words;
    size_t n_words, cap_words;
    uint16_t *options;
    size_t n_options, cap_options;
    struct buf text;
    uint16_t root;
};

#endif
