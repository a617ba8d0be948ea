/* Writes a tree as Python's json.dumps would: the prompt embeds exactly these bytes. */
#include "src/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status write_string(const char *s, size_t len, struct buf *out, struct err *e)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    enum status rc = buf_add(out, "\"", 1, e);
    for (size_t i = 0, plain = 0; i <= len && !rc; i++) {
        unsigned char c = i < len ? (unsigned char)s[i] : 0;
        if (i < len && c >= 0x20 && c != '"' && c != '\\') continue;
        rc = buf_add(out, s + plain, i - plain, e);
        plain = i + 1;
        if (rc || i == len) continue;
        const char *f = c ? strchr(from, c) : NULL;
        rc = f ? buf_addf(out, e, "\\%c", to[f - from]) : buf_addf(out, e, "\\u%04x", c);
    }
    return rc ? rc : buf_add(out, "\"", 1, e);
}

/* Python's repr of a double: shortest digits that read back the same; an exponent below 1e-4 and
 * from 1e16 up. */
static enum status write_double(double d, struct buf *out, struct err *e)
{
    char text[40];
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, d);
    while (strtod(text, NULL) != d && ++precision < 17);
    char *mark = strchr(text, 'e');
    int exponent = (int)strtol(mark + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        *mark = 0;
        return buf_addf(out, e, "%se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent));
    }
    int decimals = precision - exponent;
    return buf_addf(out, e, "%.*f", decimals > 1 ? decimals : 1, d);
}

/* s: the spelling of a number, len bytes. */
static enum status write_number(const char *s, size_t len, struct buf *out, struct err *e)
{
    bool integer = !memchr(s, '.', len) && !memchr(s, 'e', len) && !memchr(s, 'E', len);
    if (integer)
        return len == 2 && !memcmp(s, "-0", 2) ? buf_add(out, "0", 1, e) : buf_add(out, s, len, e);
    char *copy = strndup(s, len);
    if (!copy) return err_set(e, E_NOMEM, "JSON: no memory for a number");
    double d = strtod(copy, NULL);
    free(copy);
    if (!isfinite(d))
        return err_set(e, E_INVALID_REQUEST, "JSON: a number beyond the range of doubles");
    return write_double(d, out, e);
}

static enum status write_children(const struct json *j, const struct json_node *n, struct buf *out,
                                  struct err *e)
{
    bool object = n->type == JSON_OBJECT;
    enum status rc = buf_add(out, object ? "{" : "[", 1, e);
    for (uint32_t c = n->child; c && !rc; c = j->nodes[c].next) {
        const struct json_node *child = &j->nodes[c];
        if (object) {
            rc = write_string(j->text + child->key, child->key_len, out, e);
            if (!rc) rc = buf_add(out, ":", 1, e);
        }
        if (!rc) rc = json_write(j, c, out, e);
        if (!rc && child->next) rc = buf_add(out, ",", 1, e);
    }
    return rc ? rc : buf_add(out, object ? "}" : "]", 1, e);
}

enum status json_write(const struct json *j, uint32_t node, struct buf *out, struct err *e)
{
    static const char *const words[] = {
        [JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};
    const struct json_node *n = &j->nodes[node];
    switch (n->type) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        return buf_add(out, words[n->type], strlen(words[n->type]), e);
    case JSON_NUMBER:
        return write_number(j->text + n->value, n->value_len, out, e);
    case JSON_STRING:
        return write_string(j->text + n->value, n->value_len, out, e);
    default:
        return write_children(j, n, out, e);
    }
}
