/* Strings, numbers, integers with bounds, and words (literals and keys), byte by byte. Nothing is
 * taken that could not be finished: no digit that leads out of the bounds, no half of a pair of
 * surrogates without the other. */
#include "src/json_scalar.h"
#include "src/unicode.h"

#include <string.h>

static bool is_digit(unsigned char b)
{
    return b >= '0' && b <= '9';
}

static enum json_fate more_utf8(struct json_frame *f, unsigned char b)
{
    if (b < f->low || b > f->high) return REFUSED;
    f->low = 0x80;
    f->high = 0xBF;
    f->utf8--;
    return TAKEN;
}

/* A byte of plain text. */
enum json_fate json_plain_byte(struct json_frame *f, unsigned char b)
{
    if (f->utf8) return more_utf8(f, b);
    if (b < 0x20 || b == '"' || b == '\\') return REFUSED;
    if (b < 0x80) return TAKEN;
    int len = unicode_lead(b, &f->low, &f->high);
    f->utf8 = (uint8_t)(len ? len - 1 : 0);
    return len ? TAKEN : REFUSED;
}

static int hex_value(unsigned char b)
{
    if (is_digit(b)) return b - '0';
    b |= 0x20;
    return b >= 'a' && b <= 'f' ? b - 'a' + 10 : -1;
}

/* Of \uXXXX: no NUL, and a low surrogate exactly after a high one. */
static enum json_fate hex_byte(struct json_frame *f, unsigned char b)
{
    int v = hex_value(b);
    if (v < 0) return REFUSED;
    f->pos = f->pos << 4 | (unsigned)v;
    unsigned digits = ++f->space;
    if (f->step == AT_LOW_HEX) {
        if ((digits == 1 && v != 0xD) || (digits == 2 && v < 0xC)) return REFUSED;
    } else if ((digits == 2 && f->pos >= 0xDC && f->pos <= 0xDF) || (digits == 4 && !f->pos)) {
        return REFUSED;
    }
    if (digits < 4) return TAKEN;
    f->space = 0;
    f->step = f->step == AT_HEX && f->pos >= 0xD800 && f->pos <= 0xDBFF ? AT_LOW1 : AT_BODY;
    return TAKEN;
}

static enum json_fate escape_byte(struct json_frame *f, unsigned char b)
{
    switch (f->step) {
    case AT_ESCAPE:
        if (b != 'u' && !(b && strchr("\"\\/bfnrt", b))) return REFUSED;
        f->step = b == 'u' ? AT_HEX : AT_BODY;
        break;
    case AT_LOW1:
        if (b != '\\') return REFUSED;
        f->step = AT_LOW2;
        break;
    case AT_LOW2:
        if (b != 'u') return REFUSED;
        f->step = AT_LOW_HEX;
        break;
    default:
        return hex_byte(f, b);
    }
    f->pos = 0;
    f->space = 0;
    return TAKEN;
}

enum json_fate json_string_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    if (f->step == AT_START) {
        f->step = AT_BODY;
        f->space = 0;
        return b == '"' ? TAKEN : REFUSED;
    }
    if (f->step != AT_BODY) return escape_byte(f, b);
    if (f->utf8) return more_utf8(f, b);
    if (b == '"') return f->n >= c->node->min ? DONE : REFUSED;
    if (f->n >= c->node->max) return REFUSED;
    if (f->n < JSON_UNLIMITED - 1) f->n++;
    if (b != '\\') return json_plain_byte(f, b);
    f->step = AT_ESCAPE;
    return TAKEN;
}

/* --- numbers --- */

static bool number_can_end(const struct json_frame *f)
{
    return f->step == AT_ZERO || f->step == AT_INT || f->step == AT_FRACTION ||
           f->step == AT_EXP_DIGITS;
}

/* Counts a digit of the part under way, at most `most`. */
static enum json_fate digit(struct json_frame *f, enum json_step step, uint32_t most)
{
    if (f->step != step) f->n = 0;
    f->step = (uint8_t)step;
    return f->n++ < most ? TAKEN : REFUSED;
}

enum json_fate json_number_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    switch (f->step) {
    case AT_START:
    case AT_SIGN:
        if (b == '-' && f->step == AT_START) {
            f->step = AT_SIGN;
            return TAKEN;
        }
        if (!is_digit(b)) return REFUSED;
        return digit(f, b == '0' ? AT_ZERO : AT_INT, JSON_GRAMMAR_DIGITS);
    case AT_INT:
        if (is_digit(b)) return digit(f, AT_INT, JSON_GRAMMAR_DIGITS);
        /* fall through */
    case AT_ZERO:
        if (b == '.') {
            f->step = AT_DOT;
            return TAKEN;
        }
        break;
    case AT_DOT:
        return is_digit(b) ? digit(f, AT_FRACTION, JSON_GRAMMAR_DIGITS) : REFUSED;
    case AT_FRACTION:
        if (is_digit(b)) return digit(f, AT_FRACTION, JSON_GRAMMAR_DIGITS);
        break;
    case AT_EXP:
        if (b == '+' || b == '-') {
            f->step = AT_EXP_SIGN;
            return TAKEN;
        }
        /* fall through */
    case AT_EXP_SIGN:
        return is_digit(b) ? digit(f, AT_EXP_DIGITS, 2) : REFUSED;
    default:
        return is_digit(b) ? digit(f, AT_EXP_DIGITS, 2) : ENDED;
    }
    if (b != 'e' && b != 'E') return ENDED;
    f->step = AT_EXP;
    return TAKEN;
}

/* Bounds of the absolute value on one side of zero; false: no value there. */
static bool side(const struct json_node_rule *n, bool negative, uint64_t *low, uint64_t *high)
{
    if (negative ? n->low >= 0 : n->high < 0) return false;
    *low = negative ? (n->high < 0 ? (uint64_t)-n->high : 1) : (n->low > 0 ? (uint64_t)n->low : 0);
    *high = negative ? (uint64_t)-n->low : (uint64_t)n->high;
    return true;
}

/* Some value within the bounds begins with these digits. */
static bool reachable(const struct json_node_rule *n, bool negative, uint64_t value,
                      uint32_t digits)
{
    uint64_t low, high, from = value, to = value;
    if (!side(n, negative, &low, &high)) return false;
    for (; digits <= JSON_GRAMMAR_DIGITS; digits++, from *= 10, to = to * 10 + 9) {
        if (from <= high && to >= low) return true;
        if (!value) return false;
    }
    return false;
}

static bool integer_can_end(const struct json_node_rule *n, const struct json_frame *f)
{
    uint64_t low, high;
    if (f->step != AT_INT || !side(n, f->flag, &low, &high)) return false;
    return f->bits >= low && f->bits <= high;
}

enum json_fate json_integer_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    uint64_t low, high;
    if (b == '-' && f->step == AT_START) {
        f->step = AT_SIGN;
        f->flag = 1;
        return side(c->node, true, &low, &high) ? TAKEN : REFUSED;
    }
    if (!is_digit(b) || (f->step == AT_INT && !f->bits))
        return integer_can_end(c->node, f) ? ENDED : REFUSED;
    f->step = AT_INT;
    f->bits = f->bits * 10 + (b - '0');
    f->n++;
    return reachable(c->node, f->flag, f->bits, f->n) ? TAKEN : REFUSED;
}

/* --- words --- */

static unsigned char word_byte(const struct json_grammar *g, uint32_t word, uint32_t pos)
{
    return (unsigned char)g->text.data[g->words[word].at + pos];
}

/* Keeps of [first, last) the words that have b at pos; they agree on what is before it and are
 * sorted, so those that end at pos stand first. */
void json_word_narrow(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f;
    uint32_t base = c->node->first;
    while (f->first < f->last && (c->g->words[base + f->first].len == f->pos ||
                                  word_byte(c->g, base + f->first, f->pos) < b))
        f->first++;
    while (f->first < f->last && word_byte(c->g, base + f->last - 1, f->pos) > b) f->last--;
    f->pos++;
}

bool json_word_is_whole(const struct json_grammar *g, const struct json_frame *f)
{
    return f->first < f->last && g->words[g->nodes[f->node].first + f->first].len == f->pos;
}

enum json_fate json_literal_byte(const struct json_cursor *c, unsigned char b)
{
    struct json_frame *f = c->f, before;
    if (f->step == AT_START) {
        f->step = AT_WORD;
        f->last = (uint16_t)c->node->count;
    }
    before = *f;
    json_word_narrow(c, b);
    if (f->first < f->last)
        return f->last - f->first == 1 && json_word_is_whole(c->g, c->f) ? DONE : TAKEN;
    *f = before;
    return json_word_is_whole(c->g, c->f) ? ENDED : REFUSED;
}

bool json_scalar_can_end(const struct json_grammar *g, const struct json_frame *f)
{
    const struct json_node_rule *node = &g->nodes[f->node];
    switch (node->kind) {
    case JSON_K_NUMBER:
        return number_can_end(f);
    case JSON_K_INTEGER:
        return integer_can_end(node, f);
    case JSON_K_WORDS:
        return f->step == AT_WORD && json_word_is_whole(g, f);
    default:
        return false;
    }
}
