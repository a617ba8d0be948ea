/* One function for each alternative of the pattern; the first that matches wins. Each scans forward
 * without going back further than its own run, so a text costs time in proportion to its length. */
#include "src/pretok.h"
#include "src/unicode.h"

#include <stdbool.h>

static uint32_t cp(uint32_t c)
{
    return c >> 6;
}

static bool line_end(uint32_t c)
{
    return cp(c) == '\r' || cp(c) == '\n';
}

static bool upper(uint32_t c)
{
    return (c & (UNICODE_UPPER | UNICODE_HAN)) == UNICODE_UPPER;
}

static bool lower(uint32_t c)
{
    return (c & (UNICODE_LOWER | UNICODE_HAN)) == UNICODE_LOWER;
}

/* Upper* lower+: when no lower follows the run of uppers, its last character that counts as both
 * (Lm, Lo, M) has to serve. 0: no match. */
static size_t lower_word(const uint32_t *ch, size_t n)
{
    size_t i = 0;
    while (i < n && upper(ch[i])) i++;
    if (i < n && lower(ch[i])) {
        while (i < n && lower(ch[i])) i++;
        return i;
    }
    while (i > 0 && !lower(ch[i - 1])) i--;
    return i;
}

/* Upper+ lower*. 0: no match. */
static size_t upper_word(const uint32_t *ch, size_t n)
{
    size_t i = 0;
    while (i < n && upper(ch[i])) i++;
    if (!i) return 0;
    while (i < n && lower(ch[i])) i++;
    return i;
}

/* s as a lower-case ASCII letter under simple case folding; 0: none that matters. */
static char folded(uint32_t c)
{
    if (cp(c) == 0x17F) return 's';
    if (cp(c) >= 'A' && cp(c) <= 'Z') return (char)(cp(c) + 32);
    return cp(c) >= 'a' && cp(c) <= 'z' ? (char)cp(c) : 0;
}

/* 's 't 're 've 'm 'll 'd; 0: none of them. */
static size_t contraction(const uint32_t *ch, size_t n)
{
    if (n < 2 || cp(ch[0]) != '\'') return 0;
    char a = folded(ch[1]), b = n > 2 ? folded(ch[2]) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t word(const uint32_t *ch, size_t n)
{
    static size_t (*const body[2])(const uint32_t *, size_t) = {lower_word, upper_word};
    bool prefix = !line_end(ch[0]) && !(ch[0] & (UNICODE_LETTER | UNICODE_NUMBER));
    for (int i = 0; i < 2; i++) {
        for (size_t from = prefix; from <= 1; from--) {
            size_t len = body[i](ch + from, n - from);
            if (!len) continue;
            len += from;
            return len + contraction(ch + len, n - len);
        }
    }
    return 0;
}

static bool other(uint32_t c)
{
    return !(c & (UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER));
}

static size_t punctuation(const uint32_t *ch, size_t n)
{
    size_t from = cp(ch[0]) == ' ', i = from;
    while (i < n && other(ch[i])) i++;
    if (i == from) return 0;
    while (i < n && line_end(ch[i])) i++;
    return i;
}

static size_t space(const uint32_t *ch, size_t n)
{
    size_t run = 0, last_line = 0;
    while (run < n && (ch[run] & UNICODE_SPACE)) {
        if (line_end(ch[run])) last_line = run + 1;
        run++;
    }
    if (last_line) return last_line;
    return run < n && run > 1 ? run - 1 : run;
}

size_t pretok_piece(const uint32_t *ch, size_t n)
{
    size_t i = 0;
    while (i < n && (ch[i] & UNICODE_HAN)) i++;
    if (!i) i = word(ch, n);
    if (i) return i;
    while (i < n && i < 3 && (ch[i] & UNICODE_NUMBER)) i++;
    if (!i) i = punctuation(ch, n);
    return i ? i : space(ch, n);
}
