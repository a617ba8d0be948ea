/* The nodes of single types, and the tables that they stand in. Keys and literals are kept as they
 * will be spelled and sorted by bytes, so that the acceptor narrows them byte by byte. */
#include "src/json_schema.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NODES 60000

static const struct json_node *at(const struct json_compiler *c, uint32_t node)
{
    return &c->j->nodes[node];
}

static enum status grow(struct json_compiler *c, void *table, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) return OK;
    size_t more = *cap ? *cap * 2 : 16;
    void *p = realloc(*(void **)table, more * size);
    if (!p) return err_set(c->e, E_NOMEM, "schema: no memory");
    *(void **)table = p;
    *cap = more;
    return OK;
}

enum status json_rule_add(struct json_compiler *c, enum json_kind kind, uint16_t *out)
{
    struct json_grammar *g = c->g;
    if (g->n_nodes == MAX_NODES)
        return json_schema_fault(c, E_UNSUPPORTED_FIELD, "too many schemas");
    enum status rc = grow(c, &g->nodes, &g->cap_nodes, g->n_nodes, sizeof *g->nodes);
    if (rc) return rc;
    *out = (uint16_t)g->n_nodes;
    g->nodes[g->n_nodes++] = (struct json_node_rule){.kind = (uint8_t)kind,
                                                     .next = JSON_NODE_NONE,
                                                     .max = JSON_UNLIMITED,
                                                     .low = -JSON_INT_MAX,
                                                     .high = JSON_INT_MAX};
    return OK;
}

static enum status add_option(struct json_compiler *c, uint16_t node)
{
    struct json_grammar *g = c->g;
    enum status rc = grow(c, &g->options, &g->cap_options, g->n_options, sizeof *g->options);
    if (!rc) g->options[g->n_options++] = node;
    return rc;
}

enum status json_rule_options(struct json_compiler *c, uint16_t node, const uint16_t *options,
                              uint16_t n)
{
    enum status rc = OK;
    c->g->nodes[node].first = (uint32_t)c->g->n_options;
    c->g->nodes[node].count = n;
    for (uint16_t i = 0; i < n && !rc; i++) rc = add_option(c, options[i]);
    return rc;
}

static enum status add_word(struct json_compiler *c, const char *s, size_t len, uint16_t node)
{
    struct json_grammar *g = c->g;
    enum status rc = grow(c, &g->words, &g->cap_words, g->n_words, sizeof *g->words);
    if (rc) return rc;
    g->words[g->n_words++] = (struct json_word){(uint32_t)g->text.len, (uint32_t)len, node};
    return buf_add(&g->text, s, len, c->e);
}

static int compare_words(const void *va, const void *vb, void *vtext)
{
    const struct json_word *a = va, *b = vb;
    const char *text = vtext;
    uint32_t n = a->len < b->len ? a->len : b->len;
    int order = n ? memcmp(text + a->at, text + b->at, n) : 0;
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

/* Sorts the words from `first` to the last one and gives them to the node, equal ones once. */
static void end_words(struct json_compiler *c, uint16_t node, size_t first)
{
    struct json_grammar *g = c->g;
    struct json_word *w = g->words + first;
    size_t n = g->n_words - first, kept = 0;
    if (n > 1) qsort_r(w, n, sizeof *w, compare_words, g->text.data);
    for (size_t i = 0; i < n; i++)
        if (!kept || compare_words(&w[kept - 1], &w[i], g->text.data)) w[kept++] = w[i];
    g->n_words = first + kept;
    g->nodes[node].first = (uint32_t)first;
    g->nodes[node].count = (uint32_t)kept;
}

/* --- values of keywords --- */

/* A decimal integer within +-JSON_INT_MAX. */
static bool integer(const struct json_compiler *c, uint32_t node, int64_t *out)
{
    const struct json_node *v = at(c, node);
    const char *s = c->j->text + v->value;
    size_t n = v->value_len, i = 0;
    if (v->type != JSON_NUMBER) return false;
    bool negative = s[0] == '-';
    if (n - negative > JSON_GRAMMAR_DIGITS) return false;
    for (*out = 0, i = negative; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *out = *out * 10 + (s[i] - '0');
    }
    if (negative) *out = -*out;
    return true;
}

static enum status get_count(struct json_compiler *c, uint32_t schema, const char *key,
                             uint32_t *out)
{
    int64_t v = 0;
    uint32_t m = json_get(c->j, schema, key);
    if (!m) return OK;
    if (!integer(c, m, &v) || v < 0)
        return json_schema_fault_in(c, m, E_INVALID_REQUEST, "a count expected");
    *out = v < JSON_UNLIMITED ? (uint32_t)v : JSON_UNLIMITED;
    return OK;
}

static enum status get_range(struct json_compiler *c, uint32_t schema, struct json_node_rule *n)
{
    static const struct {
        const char *key;
        bool upper;
        int64_t by;
    } keys[] = {{"minimum", false, 0},
                {"exclusiveMinimum", false, 1},
                {"maximum", true, 0},
                {"exclusiveMaximum", true, -1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t v;
        uint32_t m = json_get(c->j, schema, keys[i].key);
        if (!m) continue;
        if (!integer(c, m, &v))
            return json_schema_fault_in(c, m, E_UNSUPPORTED_FIELD,
                                        "only integers of up to 18 digits are supported");
        v += keys[i].by;
        if (keys[i].upper && v < n->high) n->high = v;
        if (!keys[i].upper && v > n->low) n->low = v;
    }
    return n->low <= n->high
               ? OK
               : json_schema_fault(c, E_INVALID_REQUEST, "no integer lies within the bounds");
}

/* The member's spelling as a key, without quotes. */
static enum status spell_key(struct json_compiler *c, const char *s, size_t len, struct buf *out)
{
    struct json_node one = {.type = JSON_STRING, .value_len = (uint32_t)len};
    struct buf copy = {0};
    enum status rc = buf_add(&copy, s, len, c->e);
    struct json j = {.nodes = &one, .n = 1, .text = copy.data};
    out->len = 0;
    if (!rc) rc = json_write(&j, 0, out, c->e);
    if (!rc) {
        out->len -= 2;
        memmove(out->data, out->data + 1, out->len);
    }
    buf_free(&copy);
    return rc;
}

struct property {
    const char *key;
    size_t len;
    uint16_t node;
};

static enum status compile_properties(struct json_compiler *c, uint32_t properties,
                                      struct property *p, size_t *n)
{
    enum status rc = OK;
    const struct json_node *node = at(c, properties);
    if (node->type != JSON_OBJECT)
        return json_schema_fault_in(c, properties, E_INVALID_REQUEST, "an object expected");
    size_t before = json_schema_enter(c, "properties", 10);
    for (uint32_t m = node->child; m && !rc; m = at(c, m)->next) {
        const struct json_node *member = at(c, m);
        if (*n == JSON_GRAMMAR_PROPERTIES) {
            rc = json_schema_fault(c, E_UNSUPPORTED_FIELD, "more than 64 properties");
            break;
        }
        p[*n] = (struct property){c->j->text + member->key, member->key_len, 0};
        rc = json_schema_member(c, m, &p[*n].node);
        ++*n;
    }
    json_schema_leave(c, before);
    return rc;
}

static size_t find_property(const struct property *p, size_t n, const char *key, size_t len)
{
    size_t i = 0;
    while (i < n && (p[i].len != len || memcmp(p[i].key, key, len))) i++;
    return i;
}

/* Marks the required ones; those without a schema of their own get that of additional properties.
 */
static enum status require(struct json_compiler *c, uint32_t required, uint16_t additional,
                           struct property *p, size_t *n, uint64_t *mask)
{
    if (at(c, required)->type != JSON_ARRAY)
        return json_schema_fault_in(c, required, E_INVALID_REQUEST, "an array expected");
    for (uint32_t i = at(c, required)->child; i; i = at(c, i)->next) {
        const struct json_node *name = at(c, i);
        if (name->type != JSON_STRING)
            return json_schema_fault_in(c, required, E_INVALID_REQUEST, "strings expected");
        const char *key = c->j->text + name->value;
        size_t k = find_property(p, *n, key, name->value_len);
        if (k == *n) {
            if (additional == JSON_NODE_NONE)
                return json_schema_fault_in(c, required, E_INVALID_REQUEST,
                                            "a required property that is not allowed");
            if (*n == JSON_GRAMMAR_PROPERTIES)
                return json_schema_fault_in(c, required, E_UNSUPPORTED_FIELD,
                                            "more than 64 properties");
            p[(*n)++] = (struct property){key, name->value_len, additional};
        }
        *mask |= (uint64_t)1 << k;
    }
    return OK;
}

/* Puts the properties into the node in the order of their spelling. */
static enum status set_properties(struct json_compiler *c, uint16_t node, const struct property *p,
                                  size_t n, uint64_t mask)
{
    struct json_grammar *g = c->g;
    struct buf spelled = {0};
    size_t first = g->n_words;
    enum status rc = OK;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = spell_key(c, p[i].key, p[i].len, &spelled);
        if (!rc) rc = add_word(c, spelled.data, spelled.len, p[i].node);
    }
    if (!rc) end_words(c, node, first);
    for (size_t i = 0; i < n && !rc; i++) {
        if (!(mask >> i & 1)) continue;
        rc = spell_key(c, p[i].key, p[i].len, &spelled);
        for (size_t k = 0; k < n && !rc; k++) {
            const struct json_word *w = &g->words[first + k];
            if (w->len == spelled.len && !memcmp(g->text.data + w->at, spelled.data, w->len))
                g->nodes[node].required |= (uint64_t)1 << k;
        }
    }
    buf_free(&spelled);
    return rc;
}

static enum status compile_object(struct json_compiler *c, uint32_t schema, uint16_t node)
{
    struct property p[JSON_GRAMMAR_PROPERTIES];
    size_t n = 0;
    uint64_t mask = 0;
    uint16_t additional = JSON_N_ANY;
    enum status rc = OK;
    uint32_t properties = json_get(c->j, schema, "properties");
    uint32_t more = json_get(c->j, schema, "additionalProperties");
    uint32_t required = json_get(c->j, schema, "required");
    if (more && at(c, more)->type == JSON_FALSE)
        additional = JSON_NODE_NONE;
    else if (more)
        rc = json_schema_member(c, more, &additional);
    if (!rc && properties) rc = compile_properties(c, properties, p, &n);
    if (!rc && required) rc = require(c, required, additional, p, &n, &mask);
    if (!rc) rc = set_properties(c, node, p, n, mask);
    if (!rc) c->g->nodes[node].next = additional;
    return rc;
}

static enum status compile_array(struct json_compiler *c, uint32_t schema, uint16_t node)
{
    uint32_t min = 0, max = JSON_UNLIMITED, items = json_get(c->j, schema, "items");
    uint16_t item = JSON_N_ANY;
    enum status rc = get_count(c, schema, "minItems", &min);
    if (!rc) rc = get_count(c, schema, "maxItems", &max);
    if (!rc && min > max) rc = json_schema_fault(c, E_INVALID_REQUEST, "minItems is over maxItems");
    if (!rc && items) rc = json_schema_member(c, items, &item);
    struct json_node_rule *n = &c->g->nodes[node];
    n->min = min;
    n->max = max;
    n->next = item;
    return rc;
}

static enum status compile_string(struct json_compiler *c, uint32_t schema, uint16_t node)
{
    struct json_node_rule *n = &c->g->nodes[node];
    enum status rc = get_count(c, schema, "minLength", &n->min);
    if (!rc) rc = get_count(c, schema, "maxLength", &n->max);
    if (!rc && n->min > n->max)
        rc = json_schema_fault(c, E_INVALID_REQUEST, "minLength is over maxLength");
    return rc;
}

static const struct {
    const char *name;
    enum json_kind kind;
    const char *words[2]; /* of JSON_K_WORDS */
} types[] = {
    {"object", JSON_K_OBJECT, {0}},   {"array", JSON_K_ARRAY, {0}},
    {"string", JSON_K_STRING, {0}},   {"number", JSON_K_NUMBER, {0}},
    {"integer", JSON_K_INTEGER, {0}}, {"boolean", JSON_K_WORDS, {"false", "true"}},
    {"null", JSON_K_WORDS, {"null"}},
};
#define N_TYPES (sizeof types / sizeof *types)

static enum status compile_type(struct json_compiler *c, uint32_t schema, size_t type,
                                uint16_t node)
{
    static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum",
                                         "exclusiveMaximum"};
    size_t first = c->g->n_words;
    enum status rc = OK;
    c->g->nodes[node].kind = (uint8_t)types[type].kind;
    switch (types[type].kind) {
    case JSON_K_OBJECT:
        return compile_object(c, schema, node);
    case JSON_K_ARRAY:
        return compile_array(c, schema, node);
    case JSON_K_STRING:
        return compile_string(c, schema, node);
    case JSON_K_INTEGER:
        return get_range(c, schema, &c->g->nodes[node]);
    case JSON_K_NUMBER:
        for (size_t i = 0; i < 4; i++) {
            uint32_t m = json_get(c->j, schema, bounds[i]);
            if (m)
                return json_schema_fault_in(c, m, E_UNSUPPORTED_FIELD,
                                            "supported for type integer only");
        }
        return OK;
    default:
        for (size_t i = 0; i < 2 && !rc; i++) {
            const char *w = types[type].words[i];
            if (w) rc = add_word(c, w, strlen(w), 0);
        }
        if (!rc) end_words(c, node, first);
        return rc;
    }
}

/* The type that the keywords speak of, when none is named. */
static size_t told_type(const struct json_compiler *c, uint32_t schema)
{
    static const char *const keys[][4] = {{"properties", "required", "additionalProperties", NULL},
                                          {"items", "minItems", "maxItems", NULL},
                                          {"minLength", "maxLength", NULL, NULL}};
    for (size_t t = 0; t < 3; t++)
        for (const char *const *k = keys[t]; *k; k++)
            if (json_get(c->j, schema, *k)) return t;
    return 4; /* integer: bounds */
}

static size_t type_number(const struct json_compiler *c, uint32_t node)
{
    size_t i = 0;
    while (i < N_TYPES && (at(c, node)->type != JSON_STRING || !json_is(c->j, node, types[i].name)))
        i++;
    return i;
}

enum status json_rule_types(struct json_compiler *c, uint32_t schema, uint32_t type, uint16_t node)
{
    uint16_t options[N_TYPES], n = 0;
    enum status rc = OK;
    if (!type) return compile_type(c, schema, told_type(c, schema), node);
    if (at(c, type)->type != JSON_ARRAY) {
        size_t t = type_number(c, type);
        return t < N_TYPES ? compile_type(c, schema, t, node)
                           : json_schema_fault_in(c, type, E_INVALID_REQUEST, "an unknown type");
    }
    for (uint32_t i = at(c, type)->child; i && !rc; i = at(c, i)->next) {
        size_t t = type_number(c, i);
        if (t == N_TYPES || n == N_TYPES)
            return json_schema_fault_in(c, type, E_INVALID_REQUEST, "an unknown type");
        rc = json_rule_add(c, JSON_K_UNION, &options[n]);
        if (!rc) rc = compile_type(c, schema, t, options[n++]);
    }
    if (!rc && !n) rc = json_schema_fault_in(c, type, E_INVALID_REQUEST, "no type");
    return rc ? rc : json_rule_options(c, node, options, n);
}

/* Whether the value is of the type that the schema names beside enum or const. */
static bool of_type(const struct json_compiler *c, uint32_t value, uint32_t type)
{
    static const char *const names[] = {"null",   "boolean", "boolean", "number",
                                        "string", "array",   "object"};
    const struct json_node *v = at(c, value), *t = type ? at(c, type) : NULL;
    if (!t) return true;
    if (t->type == JSON_ARRAY) {
        for (uint32_t i = t->child; i; i = at(c, i)->next)
            if (of_type(c, value, i)) return true;
        return false;
    }
    int64_t ignored;
    if (json_is(c->j, type, "integer")) return integer(c, value, &ignored);
    return json_is(c->j, type, names[v->type]);
}

enum status json_rule_literals(struct json_compiler *c, uint32_t member, uint32_t type,
                               uint16_t node)
{
    const struct json_node *m = at(c, member);
    bool list = m->key_len == 4; /* enum, not const */
    size_t first = c->g->n_words;
    struct buf spelled = {0};
    enum status rc = OK;
    if (list && m->type != JSON_ARRAY)
        return json_schema_fault_in(c, member, E_INVALID_REQUEST, "an array expected");
    for (uint32_t i = list ? m->child : member; i && !rc; i = list ? at(c, i)->next : 0) {
        if (!of_type(c, i, type)) continue;
        spelled.len = 0;
        rc = json_write(c->j, i, &spelled, c->e);
        if (!rc) rc = add_word(c, spelled.data, spelled.len, 0);
    }
    buf_free(&spelled);
    if (rc) return rc;
    c->g->nodes[node].kind = JSON_K_WORDS;
    end_words(c, node, first);
    size_t n = c->g->nodes[node].count;
    if (!n) return json_schema_fault_in(c, member, E_INVALID_REQUEST, "no value is possible");
    return n <= JSON_GRAMMAR_LITERALS
               ? OK
               : json_schema_fault_in(c, member, E_UNSUPPORTED_FIELD, "more than 1024 values");
}

enum status json_rule_fixed(struct json_compiler *c)
{
    static const enum json_kind kinds[JSON_N_FIXED] = {
        [JSON_N_ANY] = JSON_K_UNION,     [JSON_N_OBJECT] = JSON_K_OBJECT,
        [JSON_N_ARRAY] = JSON_K_ARRAY,   [JSON_N_STRING] = JSON_K_STRING,
        [JSON_N_NUMBER] = JSON_K_NUMBER, [JSON_N_WORDS] = JSON_K_WORDS};
    static const uint16_t any[] = {JSON_N_OBJECT, JSON_N_ARRAY, JSON_N_STRING, JSON_N_NUMBER,
                                   JSON_N_WORDS};
    static const char *const words[] = {"false", "null", "true"};
    enum status rc = OK;
    for (uint16_t i = 0, node; i < JSON_N_FIXED && !rc; i++) rc = json_rule_add(c, kinds[i], &node);
    for (size_t i = 0; i < 3 && !rc; i++) rc = add_word(c, words[i], strlen(words[i]), 0);
    if (rc) return rc;
    c->g->nodes[JSON_N_OBJECT].next = c->g->nodes[JSON_N_ARRAY].next = JSON_N_ANY;
    end_words(c, JSON_N_WORDS, 0);
    return json_rule_options(c, JSON_N_ANY, any, 5);
}
