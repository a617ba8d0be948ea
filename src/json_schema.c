/* Compiles a schema: each schema of the document becomes one node, made when it is first met, so
 * that references may go in circles. Afterwards unions are flattened, so that no option is a union,
 * and each node is told how deep its smallest value is. */
#include "src/json_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NESTING 512  /* schemas within each other, references followed */
#define MAX_VISITS  1024 /* unions looked into to flatten one */

static const struct json_node *at(const struct json_compiler *c, uint32_t node)
{
    return &c->j->nodes[node];
}

enum status json_schema_fault(struct json_compiler *c, enum status code, const char *what)
{
    return err_set(c->e, code, "schema at \"#%s\": %s", c->path.len ? c->path.data : "", what);
}

size_t json_schema_enter(struct json_compiler *c, const char *key, size_t len)
{
    size_t before = c->path.len;
    struct err ignored;
    if (buf_add(&c->path, "/", 1, &ignored)) return before;
    for (size_t i = 0; i < len; i++) {
        const char *as = key[i] == '~' ? "~0" : key[i] == '/' ? "~1" : NULL;
        if (buf_add(&c->path, as ? as : key + i, as ? 2 : 1, &ignored)) break;
    }
    return before;
}

void json_schema_leave(struct json_compiler *c, size_t before)
{
    if (!c->path.data) return;
    c->path.len = before;
    c->path.data[before] = 0;
}

enum status json_schema_fault_in(struct json_compiler *c, uint32_t member, enum status code,
                                 const char *what)
{
    const struct json_node *m = at(c, member);
    size_t before = json_schema_enter(c, c->j->text + m->key, m->key_len);
    enum status rc = json_schema_fault(c, code, what);
    json_schema_leave(c, before);
    return rc;
}

enum status json_schema_member(struct json_compiler *c, uint32_t member, uint16_t *out)
{
    const struct json_node *m = at(c, member);
    size_t before = json_schema_enter(c, c->j->text + m->key, m->key_len);
    enum status rc = json_schema_compile(c, member, out);
    json_schema_leave(c, before);
    return rc;
}

static bool has_key(const struct json_compiler *c, uint32_t member, const char *key)
{
    const struct json_node *m = at(c, member);
    return m->key_len == strlen(key) && !memcmp(c->j->text + m->key, key, m->key_len);
}

/* anyOf, or allOf with one schema. */
static enum status compile_options(struct json_compiler *c, uint32_t list, uint16_t node)
{
    const struct json_node *l = at(c, list);
    uint16_t options[JSON_GRAMMAR_OPTIONS], n = 0;
    enum status rc = OK;
    if (l->type != JSON_ARRAY || !l->child)
        return json_schema_fault_in(c, list, E_INVALID_REQUEST, "schemas expected");
    if (has_key(c, list, "allOf") && at(c, l->child)->next)
        return json_schema_fault_in(c, list, E_UNSUPPORTED_FIELD, "supported with one schema only");
    size_t before = json_schema_enter(c, c->j->text + l->key, l->key_len);
    for (uint32_t i = l->child; i && !rc; i = at(c, i)->next) {
        char number[8];
        int len = snprintf(number, sizeof number, "%u", n);
        if (n == JSON_GRAMMAR_OPTIONS) {
            rc = json_schema_fault(c, E_UNSUPPORTED_FIELD, "more than 32 options");
            break;
        }
        size_t inner = json_schema_enter(c, number, (size_t)len);
        rc = json_schema_compile(c, i, &options[n++]);
        json_schema_leave(c, inner);
    }
    json_schema_leave(c, before);
    return rc ? rc : json_rule_options(c, node, options, n);
}

/* The node of the document that a reference such as #/$defs/a~1b names; 0xFFFFFFFF: none. */
static uint32_t find_target(const struct json_compiler *c, const char *s, size_t len)
{
    uint32_t node = 0;
    if (!len || *s != '#' || memchr(s, '%', len)) return UINT32_MAX;
    for (size_t i = 1; i < len;) {
        char key[256];
        size_t n = 0;
        if (s[i++] != '/') return UINT32_MAX;
        while (i < len && s[i] != '/' && n < sizeof key - 1) {
            bool escaped = s[i] == '~' && i + 1 < len && (s[i + 1] == '0' || s[i + 1] == '1');
            key[n++] = !escaped ? s[i] : s[i + 1] == '0' ? '~' : '/';
            i += escaped ? 2 : 1;
        }
        key[n] = 0;
        if (at(c, node)->type == JSON_ARRAY) {
            uint32_t item = at(c, node)->child;
            for (unsigned long k = strtoul(key, NULL, 10); item && k; k--) item = at(c, item)->next;
            node = item;
        } else {
            node = json_get(c->j, node, key);
        }
        if (!node) return UINT32_MAX;
    }
    return node;
}

static enum status compile_ref(struct json_compiler *c, uint32_t ref, uint16_t node)
{
    const struct json_node *r = at(c, ref);
    const char *s = c->j->text + r->value;
    uint32_t target = r->type == JSON_STRING ? find_target(c, s, r->value_len) : UINT32_MAX;
    if (target == UINT32_MAX)
        return json_schema_fault_in(c, ref, E_UNSUPPORTED_FIELD,
                                    "a place in this document expected");
    struct buf outer = c->path;
    uint16_t option = 0;
    c->path = (struct buf){0};
    enum status rc = buf_add(&c->path, s + 1, r->value_len - 1, c->e);
    if (!rc) rc = json_schema_compile(c, target, &option);
    buf_free(&c->path);
    c->path = outer;
    return rc ? rc : json_rule_options(c, node, &option, 1);
}

/* What a keyword says: nothing about values, something of its own kind, or all there is. */
enum role { NOTE, PLAIN, WHOLE, UNKNOWN };

static enum role keyword_role(const struct json_compiler *c, const struct json_node *m)
{
    static const char *const names[][24] = {
        [NOTE] = {"title", "description", "default", "examples", "$schema", "$id", "$comment",
                  "$defs", "definitions", "deprecated", "readOnly", "writeOnly", "format",
                  "contentEncoding", "contentMediaType", "strict"},
        [PLAIN] = {"type", "properties", "required", "additionalProperties", "items", "minItems",
                   "maxItems", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
                   "exclusiveMaximum"},
        [WHOLE] = {"enum", "const", "anyOf", "allOf", "$ref"},
    };
    for (int role = NOTE; role < UNKNOWN; role++)
        for (const char *const *n = names[role]; *n; n++)
            if (strlen(*n) == m->key_len && !memcmp(*n, c->j->text + m->key, m->key_len))
                return role;
    return UNKNOWN;
}

/* Refuses unknown keywords and those that would have to hold together. *whole: the one that says
 * all, or 0. */
static enum status check_keywords(struct json_compiler *c, uint32_t schema, uint32_t *whole)
{
    uint32_t other = 0;
    *whole = 0;
    for (uint32_t m = at(c, schema)->child; m; m = at(c, m)->next) {
        enum role role = keyword_role(c, at(c, m));
        if (role == UNKNOWN)
            return json_schema_fault_in(c, m, E_UNSUPPORTED_FIELD, "this keyword is not supported");
        if (role == WHOLE && *whole)
            return json_schema_fault_in(c, m, E_UNSUPPORTED_FIELD,
                                        "not supported beside another such keyword");
        if (role == WHOLE) *whole = m;
        if (role == PLAIN && m != json_get(c->j, schema, "type")) other = m;
    }
    if (*whole && other)
        return json_schema_fault_in(c, other, E_UNSUPPORTED_FIELD,
                                    "not supported beside enum, const, anyOf, allOf or $ref");
    return OK;
}

static enum status compile_schema(struct json_compiler *c, uint32_t schema, uint16_t node)
{
    uint32_t whole, type = json_get(c->j, schema, "type");
    enum status rc = check_keywords(c, schema, &whole);
    if (rc) return rc;
    if (!whole) return json_rule_types(c, schema, type, node);
    if (has_key(c, whole, "enum") || has_key(c, whole, "const"))
        return json_rule_literals(c, whole, type, node);
    if (type)
        return json_schema_fault_in(c, type, E_UNSUPPORTED_FIELD,
                                    "not supported beside anyOf, allOf or $ref");
    return has_key(c, whole, "$ref") ? compile_ref(c, whole, node)
                                     : compile_options(c, whole, node);
}

/* Any value at all: true, or an object that says nothing about values. */
static bool says_nothing(const struct json_compiler *c, uint32_t schema)
{
    for (uint32_t m = at(c, schema)->child; m; m = at(c, m)->next)
        if (keyword_role(c, at(c, m)) != NOTE) return false;
    return at(c, schema)->type == JSON_TRUE || at(c, schema)->type == JSON_OBJECT;
}

enum status json_schema_compile(struct json_compiler *c, uint32_t schema, uint16_t *out)
{
    *out = c->made[schema];
    if (*out != JSON_NODE_NONE) return OK;
    if (at(c, schema)->type == JSON_FALSE)
        return json_schema_fault(c, E_INVALID_REQUEST, "no value is possible");
    if (says_nothing(c, schema)) {
        *out = c->made[schema] = JSON_N_ANY;
        return OK;
    }
    if (at(c, schema)->type != JSON_OBJECT)
        return json_schema_fault(c, E_INVALID_REQUEST, "a schema expected");
    if (c->nesting == MAX_NESTING)
        return json_schema_fault(c, E_UNSUPPORTED_FIELD, "nested too deeply");
    enum status rc = json_rule_add(c, JSON_K_UNION, out);
    if (rc) return rc;
    c->made[schema] = *out;
    c->nesting++;
    rc = compile_schema(c, schema, *out);
    c->nesting--;
    return rc;
}

/* --- afterwards --- */

struct flat {
    uint16_t options[JSON_GRAMMAR_OPTIONS];
    uint16_t n;
    size_t visits;
    uint32_t *seen, stamp; /* [node] the last stamp that saw it */
};

/* Collects what is no union below `node`; false: too many. */
static bool flatten(const struct json_grammar *g, uint16_t node, struct flat *f)
{
    const struct json_node_rule *n = &g->nodes[node];
    if (f->seen[node] == f->stamp) return true;
    f->seen[node] = f->stamp;
    if (n->kind != JSON_K_UNION) {
        if (f->n == JSON_GRAMMAR_OPTIONS) return false;
        f->options[f->n++] = node;
        return true;
    }
    if (++f->visits > MAX_VISITS) return false;
    for (uint32_t i = 0; i < n->count; i++)
        if (!flatten(g, g->options[n->first + i], f)) return false;
    return true;
}

/* The flat options of all unions replace the nested ones at once, since each is read by the others.
 */
static enum status flatten_unions(struct json_compiler *c)
{
    struct json_grammar *g = c->g;
    struct flat f = {.seen = calloc(g->n_nodes, sizeof *f.seen)};
    struct json_grammar flat = {.nodes = malloc(g->n_nodes * sizeof *flat.nodes)};
    struct json_compiler into = *c;
    enum status rc = OK;
    into.g = &flat;
    if (!f.seen || !flat.nodes) rc = err_set(c->e, E_NOMEM, "schema: no memory");
    for (size_t i = 0; i < g->n_nodes && !rc; i++) {
        flat.nodes[i] = g->nodes[i];
        if (g->nodes[i].kind != JSON_K_UNION) continue;
        f.n = 0;
        f.visits = 0;
        f.stamp++;
        rc = flatten(g, (uint16_t)i, &f)
                 ? json_rule_options(&into, (uint16_t)i, f.options, f.n)
                 : err_set(c->e, E_UNSUPPORTED_FIELD, "schema: more than %d options in one anyOf",
                           JSON_GRAMMAR_OPTIONS);
    }
    free(f.seen);
    if (rc) {
        free(flat.nodes);
        free(flat.options);
        return rc;
    }
    free(g->nodes);
    free(g->options);
    g->nodes = flat.nodes;
    g->options = flat.options;
    return OK;
}

/* Frames that the smallest value of a node needs, from what is known of its parts so far. */
static uint8_t least_depth(const struct json_grammar *g, const struct json_node_rule *n)
{
    const uint8_t never = JSON_GRAMMAR_DEPTH + 1;
    uint8_t least = 0;
    switch (n->kind) {
    case JSON_K_UNION:
        least = never;
        for (uint32_t i = 0; i < n->count; i++) {
            uint8_t d = g->nodes[g->options[n->first + i]].min_depth;
            if (d < least) least = d;
        }
        return least;
    case JSON_K_OBJECT:
        for (uint32_t i = 0; i < n->count; i++) {
            uint8_t d = g->nodes[g->words[n->first + i].node].min_depth;
            if ((n->required >> i & 1) && d > least) least = d;
        }
        break;
    case JSON_K_ARRAY:
        least = n->min ? g->nodes[n->next].min_depth : 0;
        break;
    default:
        break;
    }
    return least < never ? least + 1 : never;
}

/* Depths fall from "never" to what they are; each round settles those one frame deeper at least. */
static void find_depths(struct json_grammar *g)
{
    bool changed = true;
    for (size_t i = 0; i < g->n_nodes; i++) g->nodes[i].min_depth = JSON_GRAMMAR_DEPTH + 1;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < g->n_nodes; i++) {
            uint8_t d = least_depth(g, &g->nodes[i]);
            changed |= d != g->nodes[i].min_depth;
            g->nodes[i].min_depth = d;
        }
    }
}

static enum status read_schema(struct json_compiler *c, struct json *j, const char *schema,
                               size_t len)
{
    enum status rc = json_parse(j, schema, len, c->e);
    if (rc) {
        err_wrap(c->e, "schema");
        return rc;
    }
    c->made = malloc(j->n * sizeof *c->made);
    if (!c->made) return err_set(c->e, E_NOMEM, "schema: no memory");
    memset(c->made, 0xFF, j->n * sizeof *c->made);
    return json_schema_compile(c, 0, &c->g->root);
}

enum status json_grammar_open(struct json_grammar **out, const char *schema, size_t len,
                              struct err *e)
{
    *out = NULL;
    struct json j = {0};
    struct json_grammar *g = calloc(1, sizeof *g);
    if (!g) return err_set(e, E_NOMEM, "schema: no memory");
    struct json_compiler c = {.j = &j, .g = g, .e = e};
    enum status rc = json_rule_fixed(&c);
    g->root = JSON_N_OBJECT;
    if (!rc && schema) rc = read_schema(&c, &j, schema, len);
    if (!rc) rc = flatten_unions(&c);
    if (!rc) find_depths(g);
    if (!rc && g->nodes[g->root].min_depth > JSON_GRAMMAR_DEPTH)
        rc = err_set(e, E_INVALID_REQUEST, "schema: no document of up to %d levels satisfies it",
                     JSON_GRAMMAR_DEPTH);
    free(c.made);
    buf_free(&c.path);
    json_free(&j);
    if (rc)
        json_grammar_close(g);
    else
        *out = g;
    return rc;
}

void json_grammar_close(struct json_grammar *g)
{
    if (!g) return;
    free(g->nodes);
    free(g->words);
    free(g->options);
    buf_free(&g->text);
    free(g);
}
