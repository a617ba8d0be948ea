/* Recursive descent over the bytes into an array of nodes and one text buffer. Decoding never makes
 * a string longer, so the text buffer is allocated once; members are sorted when their object
 * closes, which finds duplicates as well. */
#include "src/json.h"
#include "src/unicode.h"

#include <stdlib.h>
#include <string.h>

struct parser {
    struct json *j;
    const char *s;
    size_t at, len, text_len;
    struct err *e;
};

static enum status fault(struct parser *p, const char *what)
{
    return err_set(p->e, E_INVALID_JSON, "JSON: %s at byte %zu", what, p->at);
}

static void skip_space(struct parser *p)
{
    while (p->at < p->len && memchr(" \t\r\n", p->s[p->at], 4)) p->at++;
}

static bool take(struct parser *p, char c)
{
    if (p->at == p->len || p->s[p->at] != c) return false;
    p->at++;
    return true;
}

static enum status add_node(struct parser *p, uint32_t *out)
{
    struct json *j = p->j;
    if (j->n == j->cap) {
        size_t cap = j->cap ? j->cap * 2 : 64;
        struct json_node *nodes = realloc(j->nodes, cap * sizeof *nodes);
        if (!nodes) return err_set(p->e, E_NOMEM, "JSON: no memory for %zu nodes", cap);
        j->nodes = nodes;
        j->cap = cap;
    }
    *out = (uint32_t)j->n;
    j->nodes[j->n++] = (struct json_node){0};
    return OK;
}

static enum status hex4(struct parser *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = p->at < p->len ? p->s[p->at] : 0;
        const char *digits = "0123456789abcdefABCDEF", *d = c ? strchr(digits, c) : NULL;
        if (!d) return fault(p, "four hexadecimal digits expected");
        uint32_t v = (uint32_t)(d - digits);
        *out = *out << 4 | (v < 16 ? v : v - 6);
        p->at++;
    }
    return OK;
}

static enum status unicode_escape(struct parser *p, char *dst, size_t *n)
{
    uint32_t cp, second;
    enum status rc = hex4(p, &cp);
    if (rc) return rc;
    if (cp >= 0xD800 && cp < 0xDC00) {
        if (!take(p, '\\') || !take(p, 'u')) return fault(p, "lone surrogate");
        rc = hex4(p, &second);
        if (rc) return rc;
        if (second < 0xDC00 || second > 0xDFFF) return fault(p, "lone surrogate");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (second - 0xDC00);
    } else if (cp >= 0xDC00 && cp < 0xE000) {
        return fault(p, "lone surrogate");
    }
    *n = unicode_encode(cp, dst);
    return OK;
}

static enum status escape(struct parser *p, char *dst, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = p->at < p->len ? p->s[p->at++] : 0;
    if (c == 'u') return unicode_escape(p, dst, n);
    const char *f = c ? strchr(from, c) : NULL;
    if (!f) return fault(p, "unknown escape");
    *dst = to[f - from];
    *n = 1;
    return OK;
}

/* The opening quote is taken already. */
static enum status string(struct parser *p, uint32_t *at, uint32_t *len)
{
    char *dst = p->j->text + p->text_len, *start = dst;
    while (!take(p, '"')) {
        if (p->at == p->len) return fault(p, "string without end");
        unsigned char c = (unsigned char)p->s[p->at];
        size_t n = 1;
        if (c == '\\') {
            p->at++;
            enum status rc = escape(p, dst, &n);
            if (rc) return rc;
        } else if (c < 0x20) {
            return fault(p, "control character in a string");
        } else {
            *dst = (char)c;
            p->at++;
        }
        dst += n;
    }
    *at = (uint32_t)p->text_len;
    *len = (uint32_t)(dst - start);
    p->text_len += *len;
    return OK;
}

static size_t digits(struct parser *p)
{
    size_t from = p->at;
    while (p->at < p->len && p->s[p->at] >= '0' && p->s[p->at] <= '9') p->at++;
    return p->at - from;
}

static enum status number(struct parser *p, struct json_node *node)
{
    size_t from = p->at;
    take(p, '-');
    if (!take(p, '0') && !digits(p)) return fault(p, "value expected");
    if (take(p, '.') && !digits(p)) return fault(p, "digit expected");
    if (take(p, 'e') || take(p, 'E')) {
        if (!take(p, '+')) take(p, '-');
        if (!digits(p)) return fault(p, "digit expected");
    }
    node->type = JSON_NUMBER;
    node->value = (uint32_t)p->text_len;
    node->value_len = (uint32_t)(p->at - from);
    memcpy(p->j->text + p->text_len, p->s + from, node->value_len);
    p->text_len += node->value_len;
    return OK;
}

static int compare_keys(const void *va, const void *vb, void *vj)
{
    const struct json *j = vj;
    const struct json_node *a = &j->nodes[*(const uint32_t *)va];
    const struct json_node *b = &j->nodes[*(const uint32_t *)vb];
    uint32_t n = a->key_len < b->key_len ? a->key_len : b->key_len;
    int order = memcmp(j->text + a->key, j->text + b->key, n);
    if (order) return order;
    return (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static enum status sort_members(struct parser *p, uint32_t object, size_t n)
{
    if (n < 2) return OK;
    struct json_node *nodes = p->j->nodes;
    uint32_t *order = malloc(n * sizeof *order);
    if (!order) return err_set(p->e, E_NOMEM, "JSON: no memory for %zu members", n);
    size_t i = 0;
    for (uint32_t m = nodes[object].child; m; m = nodes[m].next) order[i++] = m;
    qsort_r(order, n, sizeof *order, compare_keys, p->j);
    enum status rc = OK;
    nodes[object].child = order[0];
    for (i = 0; i < n; i++) {
        nodes[order[i]].next = i + 1 < n ? order[i + 1] : 0;
        if (i && !compare_keys(&order[i - 1], &order[i], p->j)) rc = E_INVALID_JSON;
    }
    free(order);
    return rc ? fault(p, "duplicate key in the object that ends") : OK;
}

static enum status value(struct parser *p, uint32_t node, int depth);

static enum status member_key(struct parser *p, uint32_t node)
{
    uint32_t key = 0, len = 0;
    skip_space(p);
    if (!take(p, '"')) return fault(p, "key expected");
    enum status rc = string(p, &key, &len);
    if (rc) return rc;
    skip_space(p);
    if (!take(p, ':')) return fault(p, "':' expected");
    p->j->nodes[node].key = key;
    p->j->nodes[node].key_len = len;
    return OK;
}

/* Members of an object or items of an array; the opening bracket is taken already. */
static enum status children(struct parser *p, uint32_t parent, bool object, int depth)
{
    char end = object ? '}' : ']';
    if (depth == JSON_DEPTH) return fault(p, "nested too deeply");
    p->j->nodes[parent].type = object ? JSON_OBJECT : JSON_ARRAY;
    skip_space(p);
    if (take(p, end)) return OK;
    uint32_t last = 0;
    size_t n = 0;
    do {
        uint32_t node = 0;
        enum status rc = add_node(p, &node);
        if (!rc && object) rc = member_key(p, node);
        if (!rc) rc = value(p, node, depth + 1);
        if (rc) return rc;
        *(last ? &p->j->nodes[last].next : &p->j->nodes[parent].child) = node;
        last = node;
        n++;
        skip_space(p);
    } while (take(p, ','));
    if (!take(p, end)) return fault(p, object ? "',' or '}' expected" : "',' or ']' expected");
    return object ? sort_members(p, parent, n) : OK;
}

static bool word(struct parser *p, const char *w)
{
    size_t n = strlen(w);
    if (p->len - p->at < n || memcmp(p->s + p->at, w, n)) return false;
    p->at += n;
    return true;
}

static enum status value(struct parser *p, uint32_t node, int depth)
{
    skip_space(p);
    if (take(p, '{')) return children(p, node, true, depth);
    if (take(p, '[')) return children(p, node, false, depth);
    struct json_node *n = &p->j->nodes[node];
    if (take(p, '"')) {
        n->type = JSON_STRING;
        return string(p, &n->value, &n->value_len);
    }
    if (word(p, "null"))
        n->type = JSON_NULL;
    else if (word(p, "true"))
        n->type = JSON_TRUE;
    else if (word(p, "false"))
        n->type = JSON_FALSE;
    else
        return number(p, n);
    return OK;
}

enum status json_parse(struct json *out, const char *s, size_t len, struct err *e)
{
    *out = (struct json){0};
    if (len > JSON_MAX_BYTES)
        return err_set(e, E_INVALID_JSON, "JSON: %zu bytes, at most %u are read", len,
                       JSON_MAX_BYTES);
    struct parser p = {.j = out, .s = s, .len = len, .e = e};
    uint32_t root = 0;
    enum status rc = OK;
    p.at = unicode_valid(s, len);
    if (p.at < len) return fault(&p, "bad UTF-8");
    p.at = 0;
    out->text = malloc(len + 1);
    if (!out->text) return err_set(e, E_NOMEM, "JSON: no memory for %zu bytes", len);
    rc = add_node(&p, &root);
    if (!rc) rc = value(&p, root, 0);
    skip_space(&p);
    if (!rc && p.at < len) rc = fault(&p, "text after the value");
    if (rc) json_free(out);
    return rc;
}

void json_free(struct json *j)
{
    free(j->nodes);
    free(j->text);
    *j = (struct json){0};
}

uint32_t json_get(const struct json *j, uint32_t object, const char *key)
{
    if (j->nodes[object].type != JSON_OBJECT) return 0;
    size_t len = strlen(key);
    for (uint32_t m = j->nodes[object].child; m; m = j->nodes[m].next) {
        const struct json_node *n = &j->nodes[m];
        if (n->key_len == len && !memcmp(j->text + n->key, key, len)) return m;
    }
    return 0;
}

bool json_is(const struct json *j, uint32_t node, const char *s)
{
    const struct json_node *n = &j->nodes[node];
    return n->value_len == strlen(s) && !memcmp(j->text + n->value, s, n->value_len);
}
