/* The reader is a recursive descent, bounded in depth, that appends one value per node.
 *
 * A container's values follow it in the table, so that links forward suffice. Keys of small objects
 * are compared with one another, those of large ones sorted first. */
#include "jobs/jdoc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct jdoc *j;
    const char *s; /* the text */
    size_t len, at;
    struct err *e;
};

static enum status value(struct reader *r, unsigned depth);

#define FAULT(r, ...) fault(r, (r)->at, __VA_ARGS__)

static enum status fault(struct reader *r, size_t at, const char *what)
{
    if (at >= r->len) return err_set(r->e, E_INVALID_JSON, "%s, but the text ends", what);
    unsigned char c = (unsigned char)r->s[at];
    if (c > 0x20 && c < 0x7f)
        return err_set(r->e, E_INVALID_JSON, "byte %zu: %s, found '%c'", at + 1, what, c);
    return err_set(r->e, E_INVALID_JSON, "byte %zu: %s, found 0x%02x", at + 1, what, c);
}

unsigned jdoc_utf8(const char *p, size_t len)
{
    const unsigned char *s = (const unsigned char *)p;
    if (len == 0) return 0;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    unsigned n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (len < n) return 0;
    for (unsigned i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

bool jdoc_is_utf8(const char *p, size_t len)
{
    while (len > 0) {
        unsigned n = jdoc_utf8(p, len);
        if (n == 0) return false;
        p += n;
        len -= n;
    }
    return true;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->len && strchr(" \t\r\n", r->s[r->at]) && r->s[r->at]) r->at++;
}

static bool take(struct reader *r, char c)
{
    if (r->at >= r->len || r->s[r->at] != c) return false;
    r->at++;
    return true;
}

/* Four hex digits; -1 when they are not there. */
static int32_t hex4(const char *p, size_t len)
{
    int32_t x = 0;
    if (len < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        x = x * 16 + d;
    }
    return x;
}

/* An escape of n bytes at p (after its check): its code point. */
static uint32_t escape_code(const char *p, unsigned *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    *n = 2;
    if (p[1] != 'u') return (unsigned char)to[strchr(from, p[1]) - from];
    uint32_t c = (uint32_t)hex4(p + 2, 4);
    *n = 6;
    if (c < 0xd800 || c > 0xdbff) return c;
    *n = 12;
    return 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)hex4(p + 8, 4) - 0xdc00);
}

static enum status check_escape(struct reader *r)
{
    const char *p = r->s + r->at;
    size_t left = r->len - r->at;
    if (left < 2 || p[1] == 0 || !strchr("\"\\/bfnrtu", p[1])) {
        r->at++;
        return FAULT(r, "expected an escape after a backslash");
    }
    if (p[1] != 'u') {
        r->at += 2;
        return OK;
    }
    int32_t c = hex4(p + 2, left - 2);
    if (c < 0) return FAULT(r, "expected four hex digits after \\u");
    if (c == 0) return FAULT(r, "an escaped NUL character is not supported");
    if (c >= 0xd800 && c <= 0xdfff) {
        int32_t low =
            c <= 0xdbff && left >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, 4) : -1;
        if (low < 0xdc00 || low > 0xdfff) return FAULT(r, "a lone surrogate is no character");
        r->at += 6;
    }
    r->at += 6;
    return OK;
}

static enum status new_value(struct reader *r, enum jdoc_type type, uint32_t *out)
{
    struct jdoc *j = r->j;
    if (j->n == j->cap) {
        uint32_t cap = j->cap ? j->cap * 2 : 64;
        if (j->n >= JDOC_MAX_VALUES)
            return err_set(r->e, E_INVALID_JSON, "byte %zu: more than %u values in one text",
                           r->at + 1, JDOC_MAX_VALUES);
        struct jdoc_value *v = realloc(j->values, cap * sizeof *v);
        if (!v) return err_set(r->e, E_NOMEM, "no memory for %" PRIu32 " JSON values", cap);
        j->values = v;
        j->cap = cap;
    }
    *out = j->n++;
    j->values[*out] = (struct jdoc_value){.at = (uint32_t)r->at, .type = type};
    return OK;
}

static enum status string(struct reader *r)
{
    uint32_t v;
    r->at++;
    enum status rc = new_value(r, JDOC_STRING, &v);
    if (rc) return rc;
    size_t start = r->at;
    while (r->at < r->len) {
        unsigned char c = (unsigned char)r->s[r->at];
        if (c == '"') {
            r->j->values[v].len = (uint32_t)(r->at++ - start);
            return OK;
        }
        if (c == '\\') {
            r->j->values[v].escaped = true;
            rc = check_escape(r);
            if (rc) return rc;
        } else if (c < 0x20) {
            return FAULT(r, "a control character in a string must be escaped");
        } else if (c < 0x80) {
            r->at++;
        } else {
            unsigned n = jdoc_utf8(r->s + r->at, r->len - r->at);
            if (n == 0) return FAULT(r, "not UTF-8");
            r->at += n;
        }
    }
    return FAULT(r, "expected the end of a string");
}

static bool digits(struct reader *r)
{
    size_t start = r->at;
    while (r->at < r->len && r->s[r->at] >= '0' && r->s[r->at] <= '9') r->at++;
    return r->at > start;
}

static enum status number(struct reader *r)
{
    uint32_t v;
    enum status rc = new_value(r, JDOC_NUMBER, &v);
    if (rc) return rc;
    size_t start = r->at;
    take(r, '-');
    if (!take(r, '0') && !digits(r)) return FAULT(r, "expected a digit");
    if (take(r, '.') && !digits(r)) return FAULT(r, "expected a digit after the point");
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+')) take(r, '-');
        if (!digits(r)) return FAULT(r, "expected a digit in the exponent");
    }
    r->j->values[v].len = (uint32_t)(r->at - start);
    return OK;
}

static enum status word(struct reader *r, const char *w, enum jdoc_type type)
{
    size_t n = strlen(w);
    uint32_t v;
    if (r->len - r->at < n || memcmp(r->s + r->at, w, n)) return FAULT(r, "expected a JSON value");
    enum status rc = new_value(r, type, &v);
    if (rc) return rc;
    r->j->values[v].len = (uint32_t)n;
    r->at += n;
    return OK;
}

static enum status array(struct reader *r, unsigned depth)
{
    uint32_t self, last = 0;
    enum status rc = new_value(r, JDOC_ARRAY, &self);
    if (rc) return rc;
    size_t start = r->at++;
    skip_space(r);
    if (!take(r, ']')) {
        do {
            skip_space(r);
            uint32_t item = r->j->n;
            rc = value(r, depth + 1);
            if (rc) return rc;
            if (last) r->j->values[last].next = item;
            last = item;
            r->j->values[self].count++;
            skip_space(r);
        } while (take(r, ','));
        if (!take(r, ']')) return FAULT(r, "expected ',' or ']'");
    }
    r->j->values[self].len = (uint32_t)(r->at - start);
    return OK;
}

/* The next character of a string between p and end, as a code point. */
static uint32_t next_char(const char **p, const char *end)
{
    unsigned n;
    uint32_t c;
    if (**p == '\\') {
        c = escape_code(*p, &n);
    } else {
        n = jdoc_utf8(*p, (size_t)(end - *p));
        c = (unsigned char)**p;
        if (n > 1) c &= 0x7fu >> n;
        for (unsigned i = 1; i < n; i++) c = c << 6 | ((unsigned char)(*p)[i] & 0x3f);
    }
    *p += n;
    return c;
}

static int compare_strings(const struct jdoc *j, uint32_t a, uint32_t b)
{
    const char *p = j->text + j->values[a].at, *p_end = p + j->values[a].len;
    const char *q = j->text + j->values[b].at, *q_end = q + j->values[b].len;
    while (p < p_end && q < q_end) {
        uint32_t x = next_char(&p, p_end), y = next_char(&q, q_end);
        if (x != y) return x < y ? -1 : 1;
    }
    return (p < p_end) - (q < q_end);
}

static int compare_keys(const void *a, const void *b, void *j)
{
    return compare_strings(j, *(const uint32_t *)a, *(const uint32_t *)b);
}

static enum status duplicate(struct reader *r, uint32_t key)
{
    const struct jdoc_value *v = &r->j->values[key];
    return err_set(r->e, E_INVALID_JSON, "byte %" PRIu32 ": duplicate key \"%.*s\"", v->at,
                   v->len > 80 ? 80 : (int)v->len, r->s + v->at);
}

static enum status unique_sorted(struct reader *r, uint32_t object)
{
    uint32_t n = 0;
    enum status rc = OK;
    uint32_t *keys = malloc(r->j->values[object].count * sizeof *keys);
    if (!keys) return err_set(r->e, E_NOMEM, "no memory for the keys of a JSON object");
    for (uint32_t k = object + 1; k; k = r->j->values[k].next) keys[n++] = k;
    qsort_r(keys, n, sizeof *keys, compare_keys, r->j);
    for (uint32_t i = 1; i < n && !rc; i++)
        if (compare_strings(r->j, keys[i - 1], keys[i]) == 0)
            rc = duplicate(r, keys[i - 1] > keys[i] ? keys[i - 1] : keys[i]);
    free(keys);
    return rc;
}

static enum status unique_keys(struct reader *r, uint32_t object)
{
    const struct jdoc_value *v = r->j->values;
    if (v[object].count > 24) return unique_sorted(r, object);
    for (uint32_t a = jdoc_first(r->j, object); a; a = v[a].next)
        for (uint32_t b = object + 1; b != a; b = v[b].next)
            if (compare_strings(r->j, a, b) == 0) return duplicate(r, a);
    return OK;
}

static enum status object(struct reader *r, unsigned depth)
{
    uint32_t self, last = 0;
    enum status rc = new_value(r, JDOC_OBJECT, &self);
    if (rc) return rc;
    size_t start = r->at++;
    skip_space(r);
    if (!take(r, '}')) {
        do {
            skip_space(r);
            uint32_t key = r->j->n;
            if (r->at >= r->len || r->s[r->at] != '"') return FAULT(r, "expected a key in quotes");
            rc = string(r);
            if (rc) return rc;
            skip_space(r);
            if (!take(r, ':')) return FAULT(r, "expected ':'");
            skip_space(r);
            rc = value(r, depth + 1);
            if (rc) return rc;
            if (last) r->j->values[last].next = key;
            last = key;
            r->j->values[self].count++;
            skip_space(r);
        } while (take(r, ','));
        if (!take(r, '}')) return FAULT(r, "expected ',' or '}'");
    }
    r->j->values[self].len = (uint32_t)(r->at - start);
    return unique_keys(r, self);
}

static enum status value(struct reader *r, unsigned depth)
{
    unsigned most = r->j->depth ? r->j->depth : JDOC_MAX_DEPTH;
    if (depth > most)
        return err_set(r->e, E_INVALID_JSON, "byte %zu: nested deeper than %u", r->at + 1, most);
    switch (r->at < r->len ? r->s[r->at] : 0) {
    case '{':
        return object(r, depth);
    case '[':
        return array(r, depth);
    case '"':
        return string(r);
    case 't':
        return word(r, "true", JDOC_BOOL);
    case 'f':
        return word(r, "false", JDOC_BOOL);
    case 'n':
        return word(r, "null", JDOC_NULL);
    case '-':
        return number(r);
    default:
        if (r->at < r->len && r->s[r->at] >= '0' && r->s[r->at] <= '9') return number(r);
        return FAULT(r, "expected a JSON value");
    }
}

enum status jdoc_parse(struct jdoc *j, const char *text, size_t len, struct err *e)
{
    struct reader r = {.j = j, .s = text, .len = len, .e = e};
    j->text = text;
    j->n = 0;
    if (len > JDOC_MAX_BYTES)
        return err_set(e, E_INVALID_JSON, "%zu bytes of JSON, at most %llu can be read", len,
                       JDOC_MAX_BYTES);
    skip_space(&r);
    enum status rc = value(&r, 1);
    if (rc) return rc;
    skip_space(&r);
    if (r.at < len) return fault(&r, r.at, "text after the JSON value");
    return OK;
}

void jdoc_free(struct jdoc *j)
{
    free(j->values);
    *j = (struct jdoc){0};
}

const char *jdoc_type_name(enum jdoc_type t)
{
    static const char *const names[] = {"null",     "true or false", "a number",
                                        "a string", "an array",      "an object"};
    return names[t];
}

uint32_t jdoc_first(const struct jdoc *j, uint32_t v)
{
    return j->values[v].count ? v + 1 : 0;
}

uint32_t jdoc_member(const struct jdoc *j, uint32_t object, const char *key)
{
    if (j->values[object].type != JDOC_OBJECT) return 0;
    for (uint32_t k = jdoc_first(j, object); k; k = j->values[k].next)
        if (jdoc_is(j, k, key)) return k + 1;
    return 0;
}

bool jdoc_is(const struct jdoc *j, uint32_t v, const char *text)
{
    const struct jdoc_value *x = &j->values[v];
    if (x->type != JDOC_STRING) return false;
    const char *p = j->text + x->at, *end = p + x->len;
    size_t n = strlen(text);
    if (!x->escaped) return x->len == n && !memcmp(p, text, n);
    const char *t_end = text + n;
    while (p < end && text < t_end)
        if (next_char(&p, end) != next_char(&text, t_end)) return false;
    return p == end && text == t_end;
}

bool jdoc_true(const struct jdoc *j, uint32_t v)
{
    return j->values[v].type == JDOC_BOOL && j->text[j->values[v].at] == 't';
}

static unsigned put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    unsigned n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (unsigned i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n) | c);
    return n;
}

size_t jdoc_unescape(const struct jdoc *j, uint32_t v, char *out)
{
    const char *p = j->text + j->values[v].at, *end = p + j->values[v].len;
    char *o = out;
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((slash ? slash : end) - p);
        memcpy(o, p, plain);
        o += plain;
        p += plain;
        if (slash) o += put_utf8(o, next_char(&p, end));
    }
    *o = 0;
    return (size_t)(o - out);
}

static bool u64(const char *p, size_t len, uint64_t *out)
{
    uint64_t x = 0;
    if (len == 0) return false;
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9' || __builtin_mul_overflow(x, 10, &x) ||
            __builtin_add_overflow(x, (uint64_t)(p[i] - '0'), &x))
            return false;
    }
    *out = x;
    return true;
}

bool jdoc_u64(const struct jdoc *j, uint32_t v, uint64_t *out)
{
    const struct jdoc_value *x = &j->values[v];
    return x->type == JDOC_NUMBER && u64(j->text + x->at, x->len, out);
}

bool jdoc_i64(const struct jdoc *j, uint32_t v, int64_t *out)
{
    const struct jdoc_value *x = &j->values[v];
    if (x->type != JDOC_NUMBER) return false;
    bool minus = j->text[x->at] == '-';
    uint64_t u;
    if (!u64(j->text + x->at + minus, x->len - minus, &u)) return false;
    if (u > (uint64_t)INT64_MAX + minus) return false;
    *out = minus ? (int64_t)(0 - u) : (int64_t)u;
    return true;
}

bool jdoc_real(const struct jdoc *j, uint32_t v, double *out)
{
    const struct jdoc_value *x = &j->values[v];
    char copy[400];
    if (x->type != JDOC_NUMBER || x->len >= sizeof copy) return false;
    memcpy(copy, j->text + x->at, x->len);
    copy[x->len] = 0;
    *out = strtod(copy, NULL);
    return isfinite(*out);
}

enum status jdoc_quote(struct buf *out, const char *text, size_t len, struct err *e)
{
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    enum status rc = buf_add(out, "\"", 1, e);
    size_t done = 0;
    for (size_t i = 0; i < len && !rc; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        rc = buf_add(out, text + done, i - done, e);
        done = i + 1;
        if (rc) break;
        const char *at = c ? strchr(named, c) : NULL;
        rc = at ? buf_addf(out, e, "\\%c", letters[at - named]) : buf_addf(out, e, "\\u%04x", c);
    }
    if (!rc) rc = buf_add(out, text + done, len - done, e);
    return rc ? rc : buf_add(out, "\"", 1, e);
}

enum status jdoc_number(struct buf *out, double x, struct err *e)
{
    char text[40];
    for (int digits_n = 15; digits_n <= 17; digits_n++) {
        snprintf(text, sizeof text, "%.*g", digits_n, x);
        if (strtod(text, NULL) == x) break;
    }
    return buf_add(out, text, strlen(text), e);
}
